//! A proxy forwards, delays, swallows, breaks and refuses, and can be reset.

use diana_testing::{Proxy, RedisServer};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const SILENCE: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(10);

fn setup() -> Result<(RedisServer, Proxy)> {
    let redis = RedisServer::start()?;
    let proxy = Proxy::to(redis.port())?;
    Ok((redis, proxy))
}

fn connect(proxy: &Proxy) -> Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()))
}

/// Returns the answer that arrives within `limit`, or why there is none.
fn answer(client: &mut TcpStream, limit: Duration) -> Result<String> {
    client.set_read_timeout(Some(limit))?;
    let mut answer = [0; 7];
    client.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn ping(client: &mut TcpStream, limit: Duration) -> Result<String> {
    client.write_all(b"PING\r\n")?;
    answer(client, limit)
}

#[test]
fn forwards_and_counts() {
    let (_redis, proxy) = setup().unwrap();
    let mut client = connect(&proxy).unwrap();
    assert_eq!(ping(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
    assert_eq!(ping(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
    assert_eq!(proxy.connections(), 1);
    assert_eq!(proxy.bytes_to_server(), 12);
    assert_eq!(proxy.bytes_to_clients(), 14);
    assert_eq!(proxy.url(), format!("redis://127.0.0.1:{}", proxy.port()));
}

#[test]
fn a_delayed_answer_arrives_late() {
    let (_redis, proxy) = setup().unwrap();
    let mut client = connect(&proxy).unwrap();
    proxy.delay(Duration::from_millis(150)).unwrap();
    assert_eq!(ping(&mut client, SILENCE).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(answer(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
}

#[test]
fn a_reset_ends_pending_delays() {
    let (_redis, proxy) = setup().unwrap();
    let mut client = connect(&proxy).unwrap();
    proxy.delay(Duration::from_secs(3_600)).unwrap();
    assert_eq!(ping(&mut client, SILENCE).unwrap_err().kind(), ErrorKind::WouldBlock);
    proxy.pass().unwrap();
    assert_eq!(answer(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
}

#[test]
fn a_black_hole_accepts_and_never_answers() {
    let (_redis, proxy) = setup().unwrap();
    let mut old = connect(&proxy).unwrap();
    let mut untouched = connect(&proxy).unwrap();
    assert_eq!(ping(&mut old, MAX_WAIT).unwrap(), "+PONG\r\n");
    assert_eq!(ping(&mut untouched, MAX_WAIT).unwrap(), "+PONG\r\n");
    proxy.swallow().unwrap();
    let mut new = connect(&proxy).unwrap();
    for client in [&mut old, &mut new] {
        assert_eq!(ping(client, SILENCE).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    assert_eq!(proxy.bytes_to_server(), 12, "no byte reached the server");

    proxy.pass().unwrap();
    for client in [&mut old, &mut new] {
        assert_eq!(
            answer(client, MAX_WAIT).unwrap_err().kind(),
            ErrorKind::UnexpectedEof,
            "a stream with a gap is closed"
        );
    }
    assert_eq!(ping(&mut untouched, MAX_WAIT).unwrap(), "+PONG\r\n", "a connection without loss stays open");
    assert_eq!(ping(&mut connect(&proxy).unwrap(), MAX_WAIT).unwrap(), "+PONG\r\n");
}

#[test]
fn a_black_hole_hides_the_exit_of_the_server() {
    let (mut redis, proxy) = setup().unwrap();
    let mut client = connect(&proxy).unwrap();
    assert_eq!(ping(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
    proxy.swallow().unwrap();
    redis.kill().unwrap();
    assert_eq!(answer(&mut client, SILENCE).unwrap_err().kind(), ErrorKind::WouldBlock);
    proxy.pass().unwrap();
    assert_eq!(answer(&mut client, MAX_WAIT).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn dropped_connections_end_and_new_ones_work() {
    let (_redis, proxy) = setup().unwrap();
    let mut client = connect(&proxy).unwrap();
    assert_eq!(ping(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
    proxy.drop_connections();
    assert_eq!(answer(&mut client, MAX_WAIT).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(ping(&mut connect(&proxy).unwrap(), MAX_WAIT).unwrap(), "+PONG\r\n");
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn refuse_keeps_open_connections_and_refuses_new_ones() {
    let (_redis, proxy) = setup().unwrap();
    let mut client = connect(&proxy).unwrap();
    assert_eq!(ping(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
    for _ in 0..3 {
        proxy.refuse().unwrap();
        assert_eq!(connect(&proxy).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(ping(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
        proxy.pass().unwrap();
        assert_eq!(ping(&mut connect(&proxy).unwrap(), MAX_WAIT).unwrap(), "+PONG\r\n");
    }
}

#[test]
fn without_a_server_clients_are_dropped() {
    let (mut redis, proxy) = setup().unwrap();
    redis.kill().unwrap();
    let mut client = connect(&proxy).unwrap();
    assert!(answer(&mut client, MAX_WAIT).is_err_and(|error| error.kind() != ErrorKind::WouldBlock));
    redis.restart().unwrap();
    assert_eq!(ping(&mut connect(&proxy).unwrap(), MAX_WAIT).unwrap(), "+PONG\r\n");
}

#[test]
fn drop_closes_everything() {
    let (_redis, proxy) = setup().unwrap();
    let port = proxy.port();
    let mut client = connect(&proxy).unwrap();
    assert_eq!(ping(&mut client, MAX_WAIT).unwrap(), "+PONG\r\n");
    drop(proxy);
    assert_eq!(answer(&mut client, MAX_WAIT).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let late = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
