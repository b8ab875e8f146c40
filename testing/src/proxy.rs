//! A TCP proxy on loopback that simulates network faults: delays, black holes, broken and refused connections.
//!
//! Killing a server shows how a client handles a fault that is reported at once; most faults are not reported. With a
//! proxy in between, the server works and the connection to it does not.
//!
//! ```no_run
//! use diana_testing::{Proxy, RedisServer};
//! use std::time::Duration;
//!
//! let redis = RedisServer::start()?;
//! let proxy = Proxy::to(redis.port())?;
//! proxy.delay(Duration::from_millis(5))?; // a request and its answer take 10 ms
//! proxy.swallow()?; // a black hole
//! proxy.refuse()?; // connections are refused
//! proxy.pass()?; // back to normal
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::{Port, listen};
use parking_lot::Mutex;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

mod traffic;

use traffic::{Mode, Traffic};

/// A proxy to one port; on drop its connections are closed and its port is free again.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    traffic: Arc<Traffic>,
    /// `None` while new connections are refused.
    acceptor: Mutex<Option<Acceptor>>,
}

/// The listener and its thread.
#[derive(Debug)]
struct Acceptor {
    listener: TcpListener,
    /// Accepts until the listener is shut down.
    thread: JoinHandle<()>,
}

impl Proxy {
    /// Creates a proxy that forwards everything to `port` of 127.0.0.1. The server may be started later.
    pub fn to(port: u16) -> io::Result<Self> {
        let proxy = Self { port: Port::claim()?, traffic: Arc::new(Traffic::to(port)), acceptor: Mutex::new(None) };
        proxy.pass()?;
        Ok(proxy)
    }

    /// Returns the port on 127.0.0.1 on which it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Resets the proxy: forwards everything at once, and accepts connections.
    ///
    /// Connections whose bytes [`swallow`](Self::swallow) dropped are closed: no network delivers a stream with a gap.
    pub fn pass(&self) -> io::Result<()> {
        self.open(Mode::Pass)
    }

    /// Delays each chunk by `delay`, in both directions, so that a request with its answer takes twice that.
    ///
    /// Bytes that arrive in the meantime wait, and are the next chunk: on a busy connection one direction takes up to
    /// twice as long.
    pub fn delay(&self, delay: Duration) -> io::Result<()> {
        self.open(Mode::Delay(delay))
    }

    /// A black hole: accepts connections and bytes, and forwards nothing, not even that the other end has closed.
    pub fn swallow(&self) -> io::Result<()> {
        self.open(Mode::Swallow)
    }

    /// Refuses new connections, as a port without a listener does, from when this returns. Open connections are
    /// forwarded.
    pub fn refuse(&self) -> io::Result<()> {
        self.traffic.set_mode(Mode::Pass);
        let Some(acceptor) = self.acceptor.lock().take() else { return Ok(()) };
        // Closing it is not sufficient: a process that another thread is starting has a copy until it executes its
        // program, and with a copy the port still listens. This also wakes the accepting thread.
        rustix::net::shutdown(&acceptor.listener, rustix::net::Shutdown::Both)?;
        acceptor.thread.join().map_err(|_| io::Error::other("the accepting thread of the proxy panicked"))
    }

    /// Closes all open connections. New ones are handled as before.
    pub fn drop_connections(&self) {
        self.traffic.drop_connections();
    }

    /// Returns how many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.traffic.accepted()
    }

    /// Returns how many bytes were forwarded to the server so far.
    pub fn bytes_to_server(&self) -> u64 {
        self.traffic.to_server()
    }

    /// Returns how many bytes were forwarded to clients so far.
    pub fn bytes_to_clients(&self) -> u64 {
        self.traffic.to_clients()
    }

    fn open(&self, mode: Mode) -> io::Result<()> {
        self.traffic.set_mode(mode);
        let mut acceptor = self.acceptor.lock();
        if acceptor.is_none() {
            let listener = listen(self.port())?;
            let (traffic, accepting) = (Arc::clone(&self.traffic), listener.try_clone()?);
            let thread = std::thread::Builder::new().name("proxy".to_owned());
            let thread = thread.spawn(move || traffic.accept(&accepting))?;
            *acceptor = Some(Acceptor { listener, thread });
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // If the listener can't be closed it ends with the process; errors can't be reported in `drop`.
        let _ = self.refuse();
        self.drop_connections();
    }
}
