//! One rule of an engine as a limiter: pools take their permits from its `concurrent`, in this process and on a real Redis.

use crate::support::{engine, file};
use diana::redis::{Options, RedisStore, SharedLimiter};
use diana::rules::{Document, RuleFile};
use diana::{Concurrency, Engine, Pool, PoolError, SourceError, connect, registry};
use diana_testing::RedisServer;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

/// Connections to a database that counts those that exist.
#[derive(Clone, Default)]
struct Database(Arc<AtomicU64>);

#[derive(Debug)]
struct Connection(Arc<AtomicU64>);

impl Database {
    fn connect(&self) -> Ready<Result<Connection, Infallible>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Connection(Arc::clone(&self.0))))
    }

    fn connections(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

const RULES: &str = "rules: [{name: connections, match: {call: [application]}, by: application, concurrent: SIZE}]";

#[tokio::test(start_paused = true)]
async fn a_reload_resizes_the_pools_of_a_rule() {
    let rules = |size: &str| file(&RULES.replace("SIZE", size));
    let engine = Engine::new(&rules("2"));
    let limiter = engine.limiter("connections").unwrap();
    assert_eq!(limiter.rule(), "connections");
    let database = Database::default();
    let orders = Pool::from_source("orders", limiter.clone().with_argument("application", "orders"));
    let reports = Pool::from_source("reports", limiter.with_argument("application", "reports"));
    let get = async |pool: &Pool<Connection>| pool.get_timeout(Duration::ZERO, || database.connect()).await;

    let mut held = vec![get(&orders).await.unwrap(), get(&orders).await.unwrap()];
    assert_eq!((orders.size(), orders.in_use()), (2, 2));
    let error = get(&orders).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "pool `orders`: no resource free: denied by `connections` for orders: 0 of 2 left, retry when a permit is released"
    );
    // Each application has its own.
    held.push(get(&reports).await.unwrap());

    engine.set_rules(&rules("3"));
    held.push(get(&orders).await.unwrap());
    assert_eq!((orders.size(), database.connections()), (3, 4));
    engine.set_rules(&rules("1"));
    drop(held);
    assert_eq!((orders.size(), orders.idle(), reports.idle(), database.connections()), (1, 1, 1, 2));
    // Closed connections release the rule's permits.
    orders.clear_idle();
    let other =
        Pool::from_source("other", engine.limiter("connections").unwrap().with_argument("application", "orders"));
    assert!(get(&other).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rule_without_permits_to_hold_is_an_error() {
    let (engine, _) = engine("rules: [{name: rate, match: {call: true}, limit: 5/s}]");
    assert_eq!(engine.limiter("rates").unwrap_err().to_string(), "unknown rule `rates`");
    let pool = Pool::from_source("orders", engine.limiter("rate").unwrap());
    let error = pool.get(|| Database::default().connect()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "pool `orders`: no resource free: rule `rate` has no `concurrent`, so a pool can't hold its permits"
    );
    assert!(matches!(error, PoolError::NoPermit { error: SourceError::Failed(_), .. }));
    // A rule that is no longer loaded.
    engine.set_rules(&file("rules: [{name: other, match: {call: true}, limit: 5/s}]"));
    let error = pool.get(|| Database::default().connect()).await.unwrap_err();
    assert!(error.to_string().contains("unknown rule `rate`"), "{error}");
}

async fn shared_engine(redis: &RedisServer, size: u64) -> Engine {
    // Without `wait`, a request would wait for the connections of its own pool only.
    let rules = RULES.replace("SIZE", &format!("{size}, wait: 30s"));
    let text = format!("store: {{redis: '${{URL}}', timeout: 5s}}\n{rules}");
    let document = Document::new("diana.yaml", text);
    let file = RuleFile::read_with(&document, &registry(), |_| Some(redis.url())).unwrap();
    let store = connect(file.store.redis.as_ref().unwrap()).await.unwrap();
    Engine::with_shared(&file, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pools_of_two_processes_share_the_total_of_a_rule() {
    let redis = RedisServer::start().unwrap();
    let database = Database::default();
    let pool = async |name: &str| {
        let limiter =
            shared_engine(&redis, 3).await.limiter("connections").unwrap().with_argument("application", "shop");
        Pool::from_source(name, limiter).with_resource_name("connection")
    };
    let (one, other) = (pool("one").await, pool("other").await);
    // This application may take two of the three at most.
    one.resize(2).unwrap();
    let get = async |pool: &Pool<Connection>, timeout| pool.get_timeout(timeout, || database.connect()).await;
    let mut held = vec![get(&one, LONG).await.unwrap(), get(&one, LONG).await.unwrap()];
    assert!(matches!(get(&one, Duration::ZERO).await, Err(PoolError::NoneFree { .. })));
    let last = get(&other, LONG).await.unwrap();
    assert!(matches!(get(&other, Duration::ZERO).await, Err(PoolError::NoPermit { .. })));
    assert_eq!(database.connections(), 3);
    // A permit that is released in one process goes to the request that waits in the other one.
    let (got, ()) = tokio::join!(get(&other, LONG), async {
        while other.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        held.pop().unwrap().discard();
    });
    drop((got.unwrap(), last, held));
    assert_eq!((one.idle(), other.idle(), database.connections()), (1, 2, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pools_of_two_processes_share_the_total_of_a_limiter() {
    let redis = RedisServer::start().unwrap();
    let database = Database::default();
    let pool = async |size: u64| {
        let store = RedisStore::connect(&redis.url(), Options::default().timeout(LONG)).await.unwrap();
        let total = SharedLimiter::new(&store, "connections", Concurrency::new(3).unwrap()).key("all");
        let pool = Pool::from_source("shop", total);
        pool.resize(size).unwrap();
        pool
    };
    let (one, other) = (pool(2).await, pool(100).await);
    assert_eq!((one.size(), other.size()), (2, 3));
    let get = async |pool: &Pool<Connection>, timeout| pool.get_timeout(timeout, || database.connect()).await;
    let held = (get(&one, LONG).await.unwrap(), get(&one, LONG).await.unwrap());
    let last = get(&other, LONG).await.unwrap();
    let denied = get(&other, Duration::ZERO).await.unwrap_err().to_string();
    assert_eq!(denied, "pool `shop`: no resource free: limit `connections`: all 3 permits are in use");
    drop(held);
    one.clear_idle();
    let more = (get(&other, LONG).await.unwrap(), get(&other, LONG).await.unwrap());
    assert_eq!(database.connections(), 3);
    drop((last, more));
    // The threads of a program without futures.
    let threads = other.clone();
    let got = tokio::task::spawn_blocking(move || threads.try_get(|| database.connect().into_inner()).is_ok());
    assert!(got.await.unwrap());
    let rate = RedisStore::connect(&redis.url(), Options::default().timeout(LONG)).await.unwrap();
    let rate =
        SharedLimiter::new(&rate, "rate", diana::TokenBucket::new(diana::Quota::per_second(1).unwrap())).key("all");
    let pool = Pool::<Connection>::from_source("shop", rate);
    let error = pool.get(|| ready(Err("not called"))).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "pool `shop`: no resource free: limit `rate` is no `Concurrency`, so a pool can't hold its permits"
    );
}
