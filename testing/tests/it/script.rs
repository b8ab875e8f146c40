//! Scripts use the Redis clients of their language, and report how they failed.

use diana_testing::{RedisServer, Script, wait_until};
use std::time::Duration;

#[test]
fn redis_py_talks_to_redis() {
    let redis = RedisServer::start().unwrap();
    let script = "
import redis, sys
client = redis.Redis.from_url(sys.argv[1])
print(client.incrby('key', 2), client.execute_command('INCRBY', 'key', 3))
";
    assert_eq!(Script::python(script).unwrap().arg(&redis.url()).run().unwrap(), "2 5");
}

#[test]
fn node_redis_talks_to_redis() {
    let redis = RedisServer::start().unwrap();
    let script = "
import { createClient } from 'redis'
const client = await createClient({ url: process.argv[2] }).connect()
console.log(await client.incrBy('key', 2), await client.sendCommand(['INCRBY', 'key', '3']))
await client.close()
";
    assert_eq!(Script::node(script).unwrap().arg(&redis.url()).run().unwrap(), "2 5");
}

#[test]
fn ioredis_talks_to_redis() {
    let redis = RedisServer::start().unwrap();
    let script = "
import { Redis } from 'ioredis'
const client = new Redis(process.argv[2])
console.log(await client.incrby('key', 2), await client.call('INCRBY', 'key', 3))
await client.quit()
";
    assert_eq!(Script::node(script).unwrap().arg(&redis.url()).run().unwrap(), "2 5");
}

#[test]
fn a_failed_script_is_reported_with_its_messages() {
    let error = Script::python("print('before')\nraise ValueError('wrong')").unwrap().run().unwrap_err().to_string();
    assert!(error.contains("before\n") && error.ends_with("ValueError: wrong"), "{error}");
    let error = Script::node("console.log('before'); throw Error('wrong')").unwrap().run().unwrap_err().to_string();
    assert!(error.contains("before\n") && error.contains("Error: wrong\n"), "{error}");
}

#[test]
fn an_endless_script_is_killed() {
    let timeout = Duration::from_millis(200);
    let error = Script::python("while True: pass").unwrap().timeout(timeout).run().unwrap_err().to_string();
    assert!(error.starts_with("the python script timed out after 200ms\n"), "{error}");
    // `run` returns when all processes that could write to its output have ended.
    let error = Script::node("while (true) {}").unwrap().timeout(timeout).run().unwrap_err().to_string();
    assert!(error.starts_with("the node script timed out after 200ms\n"), "{error}");
}

#[test]
fn a_started_script_runs_until_it_is_killed() {
    let text = "import sys, time\nprint(sys.argv[1], flush=True)\nwhile True: time.sleep(1)";
    let mut script = Script::python(text).unwrap().arg("started").start().unwrap();
    let has_started = || (script.output().unwrap() == "started\n").then_some(());
    wait_until("its output", Duration::from_secs(30), has_started).unwrap();
    assert!(!script.has_ended());
    script.kill().unwrap();
    assert!(script.has_ended());
}

#[test]
fn the_output_of_a_started_script_has_its_error() {
    let script = Script::python("import sys; sys.exit('wrong')").unwrap().start().unwrap();
    wait_until("its end", Duration::from_secs(30), || script.has_ended().then_some(())).unwrap();
    assert_eq!(script.output().unwrap(), "wrong\n");
}
