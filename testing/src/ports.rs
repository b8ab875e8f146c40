//! Reserved ports: also between the check that a port is free and the start of a server on it, and while a killed
//! server is to be restarted on the same one.
//!
//! "Bind to port 0, read the number, close it" leaves a gap in which another test, or any outgoing connection, takes
//! the port. So ports are chosen below the kernel's range for outgoing connections, and each is claimed by an abstract
//! Unix socket with its number as name. The kernel allows that name to one process, in the same network namespace as
//! the port itself, and releases it when the process ends, however it ends. No file remains.

use crate::wait::wait_until;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The lowest port, and the number of ports. With [`BUS`] added they end at 30,239; Linux's own range starts at 32,768.
const LOWEST: u16 = 10_240;
const COUNT: u16 = 10_000;

/// The offset of a cluster node's bus port; as it is at least [`COUNT`], no claim has to cover both.
const BUS: u16 = 10_000;

/// How long a port may still be open in a process that is being started.
const START: Duration = Duration::from_secs(5);

/// The timeout of [`Port::exchange`].
const EXCHANGE: Duration = Duration::from_secs(10);

/// A free port of the loopback address, claimed for as long as this value lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Never written to; its name is the claim.
    _claim: UnixDatagram,
}

impl Port {
    /// Claims a port without a listener, also on its cluster bus port (10,000 above).
    pub fn claim() -> io::Result<Self> {
        // Concurrent test programs start at different offsets, so that they seldom try each other's ports.
        let start = RandomState::new().hash_one(()) % u64::from(COUNT);
        for step in 0..u64::from(COUNT) {
            let offset = u16::try_from((start + step) % u64::from(COUNT)).unwrap_or_default();
            if let Some(port) = Self::try_claim(LOWEST + offset) {
                return Ok(port);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "all ports reserved for tests are in use"))
    }

    /// Returns the port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Listens on it.
    pub fn listen(&self) -> io::Result<TcpListener> {
        listen(self.number)
    }

    /// Returns `true` if a server listens on it.
    pub(crate) fn is_listening(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.number)).is_ok()
    }

    /// Sends a request to its server. Returns all bytes of the answer until the server closes the connection.
    pub(crate) fn exchange(&self, request: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.number))?;
        stream.set_read_timeout(Some(EXCHANGE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn try_claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("diana-testing-port-{number}")).ok()?;
        let claim = UnixDatagram::bind_addr(&name).ok()?;
        let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        (free(number) && free(number + BUS)).then_some(Self { number, _claim: claim })
    }
}

/// Listens on a claimed port.
///
/// A process that another thread is starting has a copy of every listener of this one, until it executes its program: also of the
/// one with which the port was checked, or of a stopped server's. So a port that is in use is tried again.
pub(crate) fn listen(number: u16) -> io::Result<TcpListener> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, number));
    let is_used = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    wait_until("a free port", START, || match bind() {
        Err(error) if is_used(&error) => None,
        listener => Some(listener),
    })?
}
