//! A server is a real process, follows its settings, and cleans up.

use diana_testing::{Port, RedisServer};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Long enough for an answer, short enough to wait for none.
const SILENCE: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(10);

fn connect(port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn answers_on_its_own_port() {
    let (one, other) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    assert_eq!(one.url(), format!("redis://127.0.0.1:{}", one.port()));
    assert_eq!(one.cli(&["SET", "key", "of one"]).unwrap(), "OK");
    assert_eq!(one.cli(&["GET", "key"]).unwrap(), "of one");
    assert_eq!(other.cli(&["EXISTS", "key"]).unwrap(), "0");
    assert_eq!(other.info("server", "process_id").unwrap(), other.pid().to_string());
}

#[test]
fn never_writes_to_disk() {
    let redis = RedisServer::start().unwrap();
    assert_eq!(redis.cli(&["CONFIG", "GET", "save"]).unwrap(), "save");
    assert_eq!(redis.info("persistence", "aof_enabled").unwrap(), "0");
}

#[test]
fn an_error_reply_and_an_unknown_field_are_errors() {
    let redis = RedisServer::start().unwrap();
    let error = redis.cli(&["INCRBY", "key", "much"]).unwrap_err().to_string();
    assert!(error.contains("ERR value is not an integer"), "{error}");
    let error = redis.info("server", "weather").unwrap_err().to_string();
    assert_eq!(error, "INFO server has no field weather");
}

#[test]
fn a_frozen_server_answers_after_the_thaw() {
    let redis = RedisServer::start().unwrap();
    let mut client = connect(redis.port()).unwrap();
    redis.freeze().unwrap();
    assert!(!redis.is_running());
    client.write_all(b"PING\r\n").unwrap();
    client.set_read_timeout(Some(SILENCE)).unwrap();
    let mut answer = [0; 7];
    assert_eq!(client.read(&mut answer).unwrap_err().kind(), ErrorKind::WouldBlock);
    connect(redis.port()).expect("the kernel accepts connections");

    redis.thaw().unwrap();
    client.set_read_timeout(Some(MAX_WAIT)).unwrap();
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    assert!(redis.is_running());
}

#[test]
fn a_restarted_server_is_empty_on_the_same_port() {
    let mut redis = RedisServer::start().unwrap();
    let (port, pid) = (redis.port(), redis.pid());
    redis.cli(&["SET", "key", "value"]).unwrap();
    let mut client = connect(port).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    client.read_exact(&mut [0; 7]).unwrap(); // accepted: a connection still in the kernel's queue is reset

    redis.kill().unwrap();
    assert!(!is_alive(pid));
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(connect(port).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(redis.freeze().unwrap_err().kind(), ErrorKind::NotFound);
    redis.kill().expect("killing an exited process has no effect");

    redis.restart().unwrap();
    assert_eq!(redis.port(), port);
    assert_ne!(redis.pid(), pid);
    assert_eq!(redis.cli(&["DBSIZE"]).unwrap(), "0");
}

#[test]
fn drop_removes_process_and_data() {
    let redis = RedisServer::start().unwrap();
    let (port, pid) = (redis.port(), redis.pid());
    let folder = redis.cli(&["CONFIG", "GET", "dir"]).unwrap().lines().nth(1).unwrap().to_owned();
    assert!(Path::new(&folder).join("redis.conf").exists());
    redis.freeze().unwrap(); // killed also while frozen
    drop(redis);
    assert!(!is_alive(pid));
    assert!(!Path::new(&folder).exists());
    assert_eq!(connect(port).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn kill_includes_child_processes() {
    let mut redis = RedisServer::start().unwrap();
    // With this setting, a saving child takes 100 ms for each key: as long as it lives, it would write.
    redis.cli(&["CONFIG", "SET", "rdb-key-save-delay", "100000"]).unwrap();
    let keys = "for i = 1, 100 do redis.call('SET', i, i) end";
    redis.cli(&["EVAL", keys, "0"]).unwrap();
    redis.cli(&["BGSAVE"]).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", redis.pid());
    let child: u32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    assert!(is_alive(child));
    redis.kill().unwrap();
    let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_else(|_| ") Z".to_owned());
    assert!(state.contains(") Z"), "{state}");
}

#[test]
fn requires_a_password() {
    let redis = RedisServer::builder().password("open \"sesame\"").start().unwrap();
    assert_eq!(redis.cli(&["PING"]).unwrap(), "PONG");
    let mut client = connect(redis.port()).unwrap();
    client.set_read_timeout(Some(MAX_WAIT)).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"-NOAUTH");
}

#[test]
fn a_password_is_in_the_url() {
    let redis = RedisServer::builder().password("sesame").start().unwrap();
    assert_eq!(redis.url(), format!("redis://:sesame@127.0.0.1:{}", redis.port()));
}

#[test]
fn full_memory_rejects_writes_and_allows_reads() {
    let redis = RedisServer::builder().max_memory(1).start().unwrap();
    let error = redis.cli(&["SET", "key", "value"]).unwrap_err().to_string();
    assert!(error.contains("OOM"), "{error}");
    assert_eq!(redis.cli(&["GET", "key"]).unwrap(), "");
}

#[test]
fn a_replica_of_a_master_with_a_password_is_in_sync_after_a_restart() {
    let master = RedisServer::builder().password("sesame").start().unwrap();
    master.cli(&["SET", "key", "value"]).unwrap();
    let mut replica = RedisServer::builder().replica_of(&master).start().unwrap();
    replica.wait_until_in_sync().unwrap();
    assert_eq!(replica.cli(&["GET", "key"]).unwrap(), "value");
    let error = replica.cli(&["SET", "key", "other"]).unwrap_err().to_string();
    assert!(error.contains("READONLY"), "{error}");

    replica.restart().unwrap();
    replica.wait_until_in_sync().unwrap();
    assert_eq!(replica.cli(&["GET", "key"]).unwrap(), "value");
}

#[test]
fn cpu_time_includes_script_execution() {
    let redis = RedisServer::start().unwrap();
    let before = redis.cpu_time().unwrap();
    let script =
        "for i = 1, 2000000 do redis.sha1hex('') if i % 100 == 0 then redis.call('PING') end end return 'done'";
    assert_eq!(redis.cli(&["EVAL", script, "0"]).unwrap(), "done");
    assert!(redis.cpu_time().unwrap() - before >= Duration::from_millis(50));
}

#[test]
fn a_server_that_does_not_start_reports_its_log() {
    let error = RedisServer::builder().arg("maxmemory-policy", "whatever").start().unwrap_err().to_string();
    assert!(error.contains("redis-server exited at start"), "{error}");
}

#[test]
fn no_two_claims_have_the_same_port() {
    let ports: Vec<Port> = (0..100).map(|_| Port::claim().unwrap()).collect();
    let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 100);
}
