//! A TCP proxy on loopback that behaves as networks do on their bad days: late, silent, broken, refusing.
//!
//! Killing a server shows what a client does when it is told of a fault at once; most faults are not told. With a proxy
//! between, the server stays well and the way to it does not.
//!
//! ```no_run
//! use diana_testing::{Proxy, RedisServer};
//! use std::time::Duration;
//!
//! let redis = RedisServer::start()?;
//! let proxy = Proxy::to(redis.port())?;
//! proxy.delay(Duration::from_millis(5))?; // a request and its answer take 10 ms
//! proxy.swallow()?; // a black hole
//! proxy.refuse()?; // nobody there
//! proxy.pass()?; // as if nothing had been
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::ports::Port;
use parking_lot::Mutex;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
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
    /// None while new connections are refused.
    door: Mutex<Option<Door>>,
}

/// Where connections come in.
#[derive(Debug)]
struct Door {
    listener: TcpListener,
    /// Accepts until the listener is shut down.
    acceptor: JoinHandle<()>,
}

impl Proxy {
    /// A proxy that passes everything on to `port` of 127.0.0.1. Nothing has to listen there yet.
    pub fn to(port: u16) -> io::Result<Self> {
        let proxy = Self { port: Port::claim()?, traffic: Arc::new(Traffic::to(port)), door: Mutex::new(None) };
        proxy.pass()?;
        Ok(proxy)
    }

    /// The port on 127.0.0.1 where it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Back to normal: passes everything on at once, and accepts.
    ///
    /// Connections that [`swallow`](Self::swallow) took bytes from are closed: no network delivers a stream with a hole.
    pub fn pass(&self) -> io::Result<()> {
        self.open(Mode::Pass)
    }

    /// Passes each chunk on so much later, in both directions, so that a request with its answer takes twice that.
    ///
    /// What arrives in the meantime waits, and is a chunk in its turn: on a busy connection a way takes up to twice as long.
    pub fn delay(&self, delay: Duration) -> io::Result<()> {
        self.open(Mode::Delay(delay))
    }

    /// A black hole: takes connections and bytes, and passes on nothing, not even that the other end has closed.
    pub fn swallow(&self) -> io::Result<()> {
        self.open(Mode::Swallow)
    }

    /// Refuses new connections, as a port does where nobody listens, from when this returns. Those that are open pass.
    pub fn refuse(&self) -> io::Result<()> {
        self.traffic.set_mode(Mode::Pass);
        let Some(door) = self.door.lock().take() else { return Ok(()) };
        // To close it would not do: a process that another thread is just starting has a copy until it runs its program,
        // and with a copy the port still listens. This also wakes the thread that accepts.
        rustix::net::shutdown(&door.listener, rustix::net::Shutdown::Both)?;
        door.acceptor.join().map_err(|_| io::Error::other("the proxy's accepting thread panicked"))
    }

    /// Closes all open connections. New ones fare as before.
    pub fn drop_connections(&self) {
        self.traffic.drop_connections();
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.traffic.accepted()
    }

    /// How many bytes were passed on to the server so far.
    pub fn bytes_to_server(&self) -> u64 {
        self.traffic.to_server()
    }

    /// How many bytes were passed on to clients so far.
    pub fn bytes_to_clients(&self) -> u64 {
        self.traffic.to_clients()
    }

    fn open(&self, mode: Mode) -> io::Result<()> {
        self.traffic.set_mode(mode);
        let mut door = self.door.lock();
        if door.is_none() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port()))?;
            let (traffic, entrance) = (Arc::clone(&self.traffic), listener.try_clone()?);
            let thread = std::thread::Builder::new().name("proxy".to_owned());
            let acceptor = thread.spawn(move || traffic.accept(&entrance))?;
            *door = Some(Door { listener, acceptor });
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // If the door can't be closed it ends with the process; there is nobody to tell.
        let _ = self.refuse();
        self.drop_connections();
    }
}
