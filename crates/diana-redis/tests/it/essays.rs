//! The counting scripts of the essays, verbatim, beside Diana's counts on one real Redis.
//!
//! The calls of one script run within one command, during which no key expires by itself. Their sleeps advance a clock of
//! the test, which removes the keys that have expired by then: so counts and expiries are exact. The recorded runs of all
//! the essays' scripts, among them buckets and sliding windows, are in `golden`.

use crate::support::healthy_store;
use diana_core::{Ask, FixedWindow, Limit, MaxWait, Quota, Store, Timestamp, WindowStart};
use diana_redis::{DenyCache, Options, RedisStore, TimeSource, WhenDown};
use diana_testing::RedisServer;
use std::time::Duration;

/// `limit.lua`.
const LIMIT: &str = r#"
	local key = "rate.limit:" .. KEYS[1]
	local limit = tonumber(ARGV[1])
	local expire_time = ARGV[2]
	local current = tonumber(redis.call('get', key) or "0")
	if current + 1 > limit then
	  return 0
	else
	  redis.call("INCRBY", key, "1")
	  redis.call("EXPIRE", key, expire_time)
	  return 1
	end
"#;

/// The script of `RedisCountLimiter`.
const COUNT_LIMITER: &str = "local c \nc = redis.call('get',KEYS[1]) \nif c and redis.call('incr',KEYS[1]) > tonumber(ARGV[1]) then return 0 end \
     \nif c then return 1 else \nredis.call('set', KEYS[1], 1) \nredis.call('expire', KEYS[1], tonumber(ARGV[2])) \nreturn 1 end";

/// The counter that returns -1 over the limit.
const COUNTER: &str = r#"
local cnt = tonumber(redis.call("incr", KEYS[1]))

if (cnt == 1) then
 redis.call("expire", KEYS[1], tonumber(ARGV[2]))
elseif (cnt > tonumber(ARGV[1])) then
 return -1
end

return cnt
"#;

/// Calls a script after each of these sleeps, in seconds. Returns each reply, with the count of the key and when it
/// expires.
fn run(redis: &RedisServer, script: &str, key: &str, limit: u64, seconds: u64, sleeps: &[u64]) -> Vec<String> {
    let sleeps = sleeps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let calls = format!(
        "local now, expires = 0, {{}}
         local server = redis
         local function call(command, key, ...)
           if string.lower(command) == 'expire' then expires[key] = now + ... end
           return server.call(command, key, ...)
         end
         local function script(KEYS, ARGV)
           local redis = {{ call = call }}
           {script}
         end
         local out = {{}}
         for _, seconds in ipairs({{ {sleeps} }}) do
           now = now + seconds
           for key, at in pairs(expires) do
             if at <= now then
               server.call('DEL', key)
               expires[key] = nil
             end
           end
           local reply = script({{ '192.168.1.100' }}, {{ '{limit}', '{seconds}' }})
           local count = server.call('GET', '{key}')
           table.insert(out, reply .. ': count ' .. count .. ', ' .. expires['{key}'] - now .. ' s left')
         end
         return out"
    );
    redis.cli(&["EVAL", &calls, "0"]).unwrap().lines().map(str::to_owned).collect()
}

/// A store that answers by Redis alone, at the times of the test.
async fn store(redis: &RedisServer) -> RedisStore {
    let options = Options::default().when_down(WhenDown::Deny).deny_cache(DenyCache::Off);
    healthy_store(&redis.url(), options.time_source(TimeSource::Caller).timeout(Duration::from_secs(10))).await
}

/// A window that opens with the first request, as the expiry of a counter.
fn window(name: &str, quota: &str) -> Limit {
    let quota = quota.parse::<Quota>().unwrap();
    Limit::new(name, FixedWindow::new(quota).with_window_start(WindowStart::FirstRequest))
}

/// Asks after each of these sleeps, in seconds. Returns each decision, with the count that the key on Redis has.
async fn ask(store: &RedisStore, redis: &RedisServer, limit: &Limit, sleeps: &[u64]) -> Vec<String> {
    let mut now = Timestamp::from_secs(1_700_000_000);
    let mut results = Vec::new();
    for &seconds in sleeps {
        now = now + Duration::from_secs(seconds);
        let decision = store.decide(&[Ask::one(limit, "192.168.1.100")], now, MaxWait::NONE).await.unwrap();
        let key = format!("diana:{}:{{192.168.1.100}}", limit.name());
        // The time of the test stands still; Redis's must not end the window meanwhile.
        redis.cli(&["PERSIST", &key]).unwrap();
        // PARAMETERS ENDS COUNT SINCE
        let state = redis.cli(&["GET", &key]).unwrap();
        let count = state.trim().rsplit(' ').nth(1).unwrap().to_owned();
        results.push(format!("{}: count {count}", decision.is_granted()));
    }
    results
}

#[tokio::test]
async fn limit_lua_prints_true_true_false_true_true_false() {
    let redis = RedisServer::start().unwrap();
    let sleeps = [0, 0, 0, 3, 0, 2];
    assert_eq!(
        run(&redis, LIMIT, "rate.limit:192.168.1.100", 2, 3, &sleeps),
        [
            "1: count 1, 3 s left",
            "1: count 2, 3 s left",
            "0: count 2, 3 s left",
            "1: count 1, 3 s left",
            "1: count 2, 3 s left",
            "0: count 2, 1 s left",
        ]
    );
    let decisions = ask(&store(&redis).await, &redis, &window("simple", "2/3s"), &sleeps).await;
    assert_eq!(
        decisions,
        ["true: count 1", "true: count 2", "false: count 2", "true: count 1", "true: count 2", "false: count 2"]
    );
}

/// The scripts that increment first also count what they deny.
#[tokio::test]
async fn after_nine_calls_the_count_is_nine_in_the_scripts_that_increment_first_and_the_limit_in_diana() {
    let redis = RedisServer::start().unwrap();
    let nine = |replies: [&str; 9], last: u64| -> Vec<String> {
        let line = |(index, reply)| format!("{reply}: count {}, 60 s left", last.min(index as u64 + 1));
        replies.iter().enumerate().map(line).collect()
    };
    let counter = run(&redis, COUNTER, "192.168.1.100", 3, 60, &[0; 9]);
    assert_eq!(counter, nine(["1", "2", "3", "-1", "-1", "-1", "-1", "-1", "-1"], 9));
    redis.cli(&["DEL", "192.168.1.100"]).unwrap();
    let count_limiter = run(&redis, COUNT_LIMITER, "192.168.1.100", 3, 60, &[0; 9]);
    assert_eq!(count_limiter, nine(["1", "1", "1", "0", "0", "0", "0", "0", "0"], 9));
    let simple = run(&redis, LIMIT, "rate.limit:192.168.1.100", 3, 60, &[0; 9]);
    assert_eq!(simple, nine(["1", "1", "1", "0", "0", "0", "0", "0", "0"], 3));

    let decisions = ask(&store(&redis).await, &redis, &window("counter", "3/min"), &[0; 9]).await;
    let expected = |call: usize| format!("{}: count {}", call <= 3, call.min(3));
    assert_eq!(decisions, (1..=9).map(expected).collect::<Vec<_>>());
}
