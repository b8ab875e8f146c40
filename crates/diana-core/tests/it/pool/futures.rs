//! The same as futures: on paused time, and safe to drop.

use super::{Factory, Resource};
use diana_core::{Pool, PoolError, TokioClock};
use std::future::{pending, ready};
use std::time::Duration;
use tokio::time::timeout;

fn pool(size: u64) -> Pool<Resource> {
    Pool::new("database", size).unwrap().with_resource_name("connection").with_clock(TokioClock::new())
}

#[tokio::test(start_paused = true)]
async fn waiting_futures_are_served_in_order_or_time_out() {
    let (pool, factory) = (pool(1).with_max_waiting(3), Factory::default());
    let create = || ready(Ok::<_, &str>(factory.create()));
    let hold = async |wait: u64| {
        let resource = pool.get_timeout(Duration::from_millis(wait), create).await?;
        tokio::time::sleep(Duration::from_millis(150)).await;
        Ok::<_, PoolError<&str>>(resource.number)
    };
    let (first, second, late, third, refused) = tokio::join!(hold(0), hold(200), hold(200), hold(1_000), hold(1_000));
    assert_eq!((first, second, third), (Ok(1), Ok(1), Ok(1)));
    let late = late.unwrap_err().to_string();
    assert_eq!(late, "pool `database`: no connection free within 200 ms (1 in use, 1 waiting, at most 3 may wait)");
    let refused = refused.unwrap_err().to_string();
    assert_eq!(refused, "pool `database`: no connection free (1 in use, 3 waiting, at most 3 may wait)");
    assert_eq!((pool.idle(), pool.waiting(), factory.live()), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_leaves_the_queue_and_releases_its_permit() {
    let (pool, factory) = (pool(1), Factory::default());
    let create = || ready(Ok::<_, &str>(factory.create()));
    let short = Duration::from_millis(10);
    // While it creates a resource.
    assert!(timeout(short, pool.get(pending::<Result<Resource, &str>>)).await.is_err());
    assert_eq!((pool.in_use(), pool.idle()), (0, 0));
    // While it waits.
    let held = pool.get(create).await.unwrap();
    assert!(timeout(short, pool.get(create)).await.is_err());
    assert_eq!((pool.waiting(), pool.in_use()), (0, 1));
    drop(held);
    assert_eq!(pool.get(create).await.unwrap().number, 1);
}

#[tokio::test]
async fn a_panic_of_an_async_factory_loses_no_permit() {
    let (pool, factory) = (pool(1), Factory::default());
    let panicking = pool.clone();
    let panicked = tokio::spawn(async move {
        let create = || async {
            tokio::task::yield_now().await;
            panic!("out of sockets")
        };
        let _ = panicking.get::<&str, _>(create).await;
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!((pool.in_use(), pool.idle()), (0, 0));
    assert_eq!(pool.get(|| ready(Ok::<_, &str>(factory.create()))).await.unwrap().number, 1);
}
