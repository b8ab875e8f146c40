//! Connections to a server that allows a number of them, as MySQL's `max_connections` does, and closes some of them.

use diana_core::{Pool, PoolError};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const MAX_CONNECTIONS: usize = 3;
/// After so many queries the server closes a connection.
const QUERIES: usize = 10;

#[derive(Debug, Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
    refused: AtomicUsize,
}

/// A server that answers each line with `OK`.
fn start_server(counts: &Arc<Counts>) -> SocketAddr {
    let (listener, counts) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::clone(counts));
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let open = counts.open.fetch_add(1, Ordering::SeqCst) + 1;
            if open > MAX_CONNECTIONS {
                counts.open.fetch_sub(1, Ordering::SeqCst);
                counts.refused.fetch_add(1, Ordering::SeqCst);
                let _ = (&stream).write_all(b"Too many connections\n");
                continue;
            }
            counts.most.fetch_max(open, Ordering::SeqCst);
            let counts = Arc::clone(&counts);
            thread::spawn(move || serve(stream, &counts));
        }
    });
    address
}

fn serve(stream: TcpStream, counts: &Counts) {
    let mut lines = BufReader::new(&stream).lines();
    for number in 1.. {
        let Some(Ok(_)) = lines.next() else { break };
        if number == QUERIES {
            break;
        }
        let _ = (&stream).write_all(b"OK\n");
    }
    // Before the client can see that it is closed, and connect again.
    counts.open.fetch_sub(1, Ordering::SeqCst);
}

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { stream: BufReader::new(TcpStream::connect(address)?) })
    }

    fn query(&mut self, text: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("{text}\n").as_bytes())?;
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "server has gone away")),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Connection {
    /// Waits until the server has closed its side, so that its count is exact.
    fn drop(&mut self) {
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Write);
        let _ = io::copy(&mut self.stream, &mut io::sink());
    }
}

#[test]
fn a_pool_keeps_to_max_connections_and_replaces_those_that_the_server_closes() {
    let counts = Arc::default();
    let address = start_server(&counts);
    let pool = Pool::new("orders", MAX_CONNECTIONS as u64).unwrap().with_resource_name("connection");
    let (answered, gone) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut connection = pool.blocking_get(|| Connection::open(address)).unwrap();
                    match connection.query("SELECT 1") {
                        Ok(answer) => {
                            assert_eq!(answer, "OK");
                            answered.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(_) => {
                            connection.discard();
                            gone.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
    });
    let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
    assert_eq!(load(&answered) + load(&gone), 400);
    assert!(load(&gone) >= 400 / QUERIES - MAX_CONNECTIONS, "{}", load(&gone));
    assert_eq!((load(&counts.refused), load(&counts.most) <= MAX_CONNECTIONS), (0, true));
    assert!(pool.idle() <= MAX_CONNECTIONS);
    drop(pool);
    assert_eq!(load(&counts.open), 0);
}

#[test]
fn a_server_that_is_not_reachable_is_the_error_of_each_request() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let pool = Pool::<Connection>::new("orders", 1).unwrap().with_resource_name("connection");
    for _ in 0..3 {
        let Err(PoolError::Create { error, .. }) = pool.blocking_get(|| Connection::open(address)) else {
            panic!("expected an error")
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
    assert_eq!(pool.in_use(), 0);
}
