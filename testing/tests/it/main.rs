//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-testing --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue should stop")]

mod auth_proxies;
mod browser;
mod envoy_server;
mod etcd_server;
mod http_server;
mod nginx_server;
mod proxy;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
mod script;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// Returns the response to a GET with these header lines, each with its line end.
fn get(port: u16, headers: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET /rules.yaml HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
