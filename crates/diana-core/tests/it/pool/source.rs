//! Pools whose resources hold permits of a limit beside their own size: a total that several pools share.

use super::{Factory, Resource};
use diana_core::{
    BoxFuture, ConcurrencyLimiter, MaxWait, PermitError, PermitSource, Pool, PoolError, Pooled, SourceError,
    SourcePermit, TokioClock,
};
use proptest::prelude::*;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, advance, sleep, timeout};

/// The connections that a database allows to all pools together.
#[derive(Clone)]
struct Database(Arc<ConcurrencyLimiter>);

impl Database {
    fn new(connections: u64) -> Self {
        Self(Arc::new(ConcurrencyLimiter::new("database", connections).unwrap().with_clock(TokioClock::new())))
    }

    fn pool(&self, name: &str) -> Pool<Resource> {
        Pool::from_source(name, self.clone()).with_resource_name("connection").with_clock(TokioClock::new())
    }

    fn in_use(&self) -> u64 {
        self.0.limit().saturating_sub(self.0.available())
    }
}

impl PermitSource for Database {
    fn acquire(&self, max_wait: MaxWait) -> BoxFuture<'_, Result<SourcePermit, SourceError>> {
        Box::pin(async move {
            let permit = match max_wait {
                MaxWait::NONE => self.0.try_acquire(1),
                MaxWait::FOREVER => self.0.acquire(1).await,
                wait => self.0.acquire_timeout(1, wait.as_duration()).await,
            };
            let denied = |error: PermitError| SourceError::Denied(error.to_string());
            permit.map(|permit| Box::new(permit) as SourcePermit).map_err(denied)
        })
    }

    fn limit(&self) -> Option<u64> {
        Some(self.0.limit())
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn block_on(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work);
    }
}

type Created = Ready<Result<Resource, &'static str>>;

fn create(factory: &Factory) -> impl Fn() -> Created {
    || ready(Ok(factory.create()))
}

/// Gets a resource if no wait is needed.
async fn get(pool: &Pool<Resource>, factory: &Factory) -> Result<Pooled<Resource>, PoolError<&'static str>> {
    pool.get_timeout(Duration::ZERO, create(factory)).await
}

#[tokio::test(start_paused = true)]
async fn an_idle_resource_holds_its_permit_until_it_is_closed() {
    let (database, factory) = (Database::new(2), Factory::default());
    let (orders, reports) = (database.pool("orders"), database.pool("reports"));
    drop(get(&orders, &factory).await.unwrap());
    let report = get(&reports, &factory).await.unwrap();
    assert_eq!((orders.idle(), orders.size(), database.in_use()), (1, 2, 2));
    let error = get(&reports, &factory).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "pool `reports`: no connection free: no permit of `database` is free: 2 of 2 in use, 0 requests queued"
    );
    orders.clear_idle();
    assert_eq!((database.in_use(), factory.live()), (1, 1));
    let second = get(&reports, &factory).await.unwrap();
    second.discard();
    drop(report);
    assert_eq!((database.in_use(), reports.idle(), factory.live()), (1, 1, 1));
    drop(reports);
    assert_eq!((database.in_use(), factory.live()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn other_pools_get_the_permits_of_resources_that_are_idle_for_a_minute() {
    let (database, factory) = (Database::new(1), Factory::default());
    let (orders, reports) = (database.pool("orders"), database.pool("reports"));
    let started = Instant::now();
    drop(get(&orders, &factory).await.unwrap());
    let report = reports.get(create(&factory)).await.unwrap();
    assert_eq!((started.elapsed().as_secs(), orders.idle()), (60, 0));
    // The wait of this one ends when the first pool's is returned, which is still idle for its other users.
    let waiting = tokio::spawn({
        let (orders, factory) = (orders.clone(), factory.clone());
        async move { orders.get_timeout(Duration::from_secs(10), create(&factory)).await.map(drop) }
    });
    sleep(Duration::from_secs(5)).await;
    report.discard();
    waiting.await.unwrap().unwrap();
    let short = database.pool("short").with_idle_timeout(Duration::from_secs(1));
    assert!(short.get_timeout(Duration::from_secs(59), create(&factory)).await.is_err());
    drop(short.get_timeout(Duration::from_secs(2), create(&factory)).await.unwrap());
    sleep(Duration::from_millis(1_010)).await;
    assert_eq!((short.idle(), database.in_use()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_take_what_is_free_first_in_order() {
    let (database, factory) = (Database::new(1), Factory::default());
    let (orders, reports) = (database.pool("orders"), database.pool("reports"));
    let hold = async |pool: &Pool<Resource>| {
        let resource = pool.get_timeout(Duration::from_secs(5), create(&factory)).await?;
        sleep(Duration::from_millis(10)).await;
        Ok::<_, PoolError<&str>>(resource.number)
    };
    // The first connection is returned to the same pool, and reused there by each in its turn.
    let (first, second, third) = tokio::join!(hold(&orders), hold(&orders), hold(&orders));
    assert_eq!((first, second, third), (Ok(1), Ok(1), Ok(1)));
    // A connection that breaks makes its permit free: for the queue of the database, in which the other pool came first.
    let broken = get(&orders, &factory).await.unwrap();
    let (other, own, ()) = tokio::join!(hold(&reports), hold(&orders), async { broken.discard() });
    assert_eq!(other, Ok(2));
    // It is idle in the other pool now.
    assert!(matches!(own, Err(PoolError::NoPermit { .. })), "{own:?}");
    assert_eq!((orders.waiting(), reports.waiting(), factory.live()), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_resized_pool_takes_only_its_part_of_the_total() {
    let (database, factory) = (Database::new(10), Factory::default());
    let (orders, reports) = (database.pool("orders"), database.pool("reports"));
    orders.resize(2).unwrap();
    assert_eq!((orders.size(), reports.size()), (2, 10));
    let held = (get(&orders, &factory).await.unwrap(), get(&orders, &factory).await.unwrap());
    let error = get(&orders, &factory).await.unwrap_err().to_string();
    assert_eq!(error, "pool `orders`: no connection free (2 in use, 0 waiting, at most 10000 may wait)");
    orders.resize(3).unwrap();
    let third = get(&orders, &factory).await.unwrap();
    // In use over the new size: they stay, and are closed instead of returned.
    orders.resize(1).unwrap();
    assert_eq!((orders.in_use(), database.in_use()), (3, 3));
    drop((held, third));
    assert_eq!((orders.in_use(), orders.idle(), database.in_use(), factory.live()), (0, 1, 1, 1));
    assert!(orders.resize(0).is_err());
    assert_eq!(orders.size(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_application_has_an_allotment_of_the_total() {
    let (total, factory) = (Database::new(3), Factory::default());
    let (shop, office) = (Database::new(2), Database::new(2));
    let pool = |name, allotment: &Database| {
        Pool::<Resource>::from_source(name, (allotment.clone(), total.clone())).with_clock(TokioClock::new())
    };
    let (orders, carts, reports) = (pool("orders", &shop), pool("carts", &shop), pool("reports", &office));
    assert_eq!(orders.size(), 2);
    let held = (get(&orders, &factory).await.unwrap(), get(&carts, &factory).await.unwrap());
    // The shop has its two; the office gets the last one of the three.
    assert!(get(&orders, &factory).await.is_err());
    let report = get(&reports, &factory).await.unwrap();
    assert!(get(&reports, &factory).await.is_err());
    assert_eq!((shop.in_use(), office.in_use(), total.in_use()), (2, 1, 3));
    // The timeout is one for both: the shop's permit is free after 6 ms, and the total's would be after 14.
    held.1.discard();
    let other = total.0.try_acquire(1).unwrap();
    held.0.discard();
    let taken = (total.0.try_acquire(1).unwrap(), shop.0.try_acquire(2).unwrap());
    let (late, ()) = tokio::join!(carts.get_timeout(Duration::from_millis(10), create(&factory)), async {
        sleep(Duration::from_millis(6)).await;
        drop(taken.1);
        sleep(Duration::from_millis(8)).await;
        drop(taken.0);
    });
    assert!(late.is_err());
    drop((other, report));
    orders.clear_idle();
    reports.clear_idle();
    assert_eq!((shop.in_use(), office.in_use(), total.in_use(), factory.live()), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_total_that_shrinks_closes_what_is_returned() {
    let (database, factory) = (Database::new(3), Factory::default());
    let pool = database.pool("orders");
    let held =
        (get(&pool, &factory).await.unwrap(), get(&pool, &factory).await.unwrap(), get(&pool, &factory).await.unwrap());
    database.0.resize(1).unwrap();
    assert_eq!(pool.size(), 1);
    drop(held);
    assert_eq!((pool.idle(), factory.live(), database.in_use()), (1, 1, 1));
    database.0.resize(2).unwrap();
    assert_eq!((pool.size(), get(&pool, &factory).await.unwrap().number), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_holds_nothing_of_the_total() {
    let (database, factory) = (Database::new(1), Factory::default());
    let pool = database.pool("orders").with_max_waiting(1);
    let held = get(&pool, &factory).await.unwrap();
    let short = Duration::from_millis(10);
    assert!(timeout(short, pool.get(create(&factory))).await.is_err());
    assert_eq!((pool.waiting(), pool.in_use(), database.in_use()), (0, 1, 1));
    // One may wait, and the next one may not.
    let (waited, refused) = tokio::join!(pool.get_timeout(short, create(&factory)), async {
        tokio::task::yield_now().await;
        pool.get_timeout(Duration::from_millis(5), create(&factory)).await
    });
    let waited = waited.unwrap_err().to_string();
    assert!(waited.starts_with("pool `orders`: no connection free within 10 ms: "), "{waited}");
    assert!(refused.is_err());
    drop(held);
    assert_eq!(get(&pool, &factory).await.unwrap().number, 1);
    // While it is created.
    pool.clear_idle();
    assert!(timeout(short, pool.get(std::future::pending::<Result<Resource, &str>>)).await.is_err());
    assert_eq!((pool.in_use(), pool.idle(), database.in_use()), (0, 0, 0));
    let failed = pool.get(|| ready(Err::<Resource, _>("connection refused"))).await;
    assert!(matches!(failed, Err(PoolError::Create { .. })));
    assert_eq!((pool.in_use(), database.in_use()), (0, 0));
}

#[test]
fn threads_wait_for_a_permit_or_an_idle_resource() {
    let (database, factory) = (Database::new(1), Factory::default());
    let pool = Pool::from_source("orders", Database(Arc::clone(&database.0)));
    let create = || Ok::<_, &str>(factory.create());
    // An idle resource is closed by a task of the source, which needs a runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let _entered = runtime.enter();
    std::thread::scope(|scope| {
        let held = pool.try_get(create).unwrap();
        assert!(pool.try_get(create).is_err());
        let waiting = scope.spawn(|| {
            let _entered = runtime.enter();
            pool.blocking_get(create).map(|resource| resource.number)
        });
        while pool.waiting() == 0 {
            std::thread::yield_now();
        }
        drop(held);
        assert_eq!(waiting.join().unwrap(), Ok(1));
    });
}

/// A step of two pools.
#[derive(Clone, Copy, Debug)]
enum Step {
    Get { pool: usize },
    Return(usize),
    Discard(usize),
    Wait { pool: usize, millis: u64 },
    Advance { seconds: u64 },
    Resize { pool: usize, size: u64 },
    ResizeTotal(u64),
    ClearIdle { pool: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let pool = || 0_usize..2;
    prop_oneof![
        4 => pool().prop_map(|pool| Step::Get { pool }),
        3 => any::<usize>().prop_map(Step::Return),
        1 => any::<usize>().prop_map(Step::Discard),
        1 => (pool(), 1_u64..20).prop_map(|(pool, millis)| Step::Wait { pool, millis }),
        1 => (1_u64..90).prop_map(|seconds| Step::Advance { seconds }),
        1 => (pool(), 1_u64..5).prop_map(|(pool, size)| Step::Resize { pool, size }),
        1 => (1_u64..6).prop_map(Step::ResizeTotal),
        1 => pool().prop_map(|pool| Step::ClearIdle { pool }),
    ]
}

proptest! {
    /// Whatever the users of two pools do, each resource that exists holds one permit of the total, and each permit is a
    /// resource's.
    #[test]
    fn each_resource_holds_one_permit_of_the_total(total in 1_u64..6, steps in prop::collection::vec(step(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (database, factory) = (Database::new(total), Factory::default());
            let pools = [database.pool("orders"), database.pool("reports")];
            let (mut held, mut sizes) = (Vec::new(), [u64::MAX; 2]);
            for step in steps {
                let chosen = |index: usize, held: &mut Vec<Pooled<Resource>>| {
                    (!held.is_empty()).then(|| held.swap_remove(index % held.len()))
                };
                let used = factory.live() as u64;
                match step {
                    Step::Get { pool } => {
                        let (in_use, idle) = (pools[pool].in_use(), pools[pool].idle());
                        let got = get(&pools[pool], &factory).await;
                        let is_free = in_use < sizes[pool] && (idle > 0 || used < database.0.limit());
                        prop_assert_eq!(got.is_ok(), is_free, "{:?}", got);
                        held.extend(got);
                    }
                    Step::Return(index) => drop(chosen(index, &mut held)),
                    Step::Discard(index) => {
                        if let Some(resource) = chosen(index, &mut held) {
                            resource.discard();
                        }
                    }
                    Step::Wait { pool, millis } => {
                        held.extend(pools[pool].get_timeout(Duration::from_millis(millis), create(&factory)).await);
                    }
                    Step::Advance { seconds } => {
                        // The tasks that close idle resources start their timers.
                        tokio::task::yield_now().await;
                        advance(Duration::from_secs(seconds)).await;
                        sleep(Duration::from_millis(2)).await;
                    }
                    Step::Resize { pool, size } => {
                        pools[pool].resize(size).unwrap();
                        sizes[pool] = size;
                    }
                    Step::ResizeTotal(size) => database.0.resize(size).unwrap(),
                    Step::ClearIdle { pool } => pools[pool].clear_idle(),
                }
                let existing = factory.live() as u64;
                prop_assert_eq!(existing, held.len() as u64 + (pools[0].idle() + pools[1].idle()) as u64);
                prop_assert_eq!(pools[0].waiting() + pools[1].waiting(), 0);
                prop_assert!(existing <= used.max(database.0.limit()));
            }
            drop(held);
            pools.iter().for_each(Pool::clear_idle);
            prop_assert_eq!((factory.live(), database.in_use()), (0, 0));
            Ok(())
        })?;
    }
}
