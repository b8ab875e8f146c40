//! Ports that stay ours: also between the moment that one is found free and the moment that a server listens there, and
//! while a killed server is to come back on the same one.
//!
//! "Bind to port 0, see what it was, let it go" leaves a gap in which another test, or any outgoing connection, takes the
//! port. So ports are taken from below the range that the kernel gives to outgoing connections, and each is claimed by an
//! abstract Unix socket of its number. The kernel lets one process have that name, in the same network namespace as the
//! port itself, and takes it back when the process ends, however it ends. No file is left behind.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The lowest port that is given out, and how many there are. With [`BUS`] above they end at 30,239; Linux's own range
/// starts at 32,768.
const LOWEST: u16 = 10_240;
const COUNT: u16 = 10_000;

/// A node of a cluster also listens so far above its port; as this is no less than [`COUNT`], no claim has to cover both.
const BUS: u16 = 10_000;

/// A free port of the loopback address, claimed for as long as this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Nobody ever writes to it; its name is the claim.
    _claim: UnixDatagram,
}

impl Port {
    /// Claims a port on which nothing listens, and on whose cluster bus (10,000 above) nothing does either.
    pub fn claim() -> io::Result<Self> {
        // Test programs that run side by side start at different places, so that they seldom try each other's ports.
        let start = RandomState::new().hash_one(()) % u64::from(COUNT);
        for step in 0..u64::from(COUNT) {
            let offset = u16::try_from((start + step) % u64::from(COUNT)).unwrap_or_default();
            if let Some(port) = Self::try_claim(LOWEST + offset) {
                return Ok(port);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "every port that tests may use is taken"))
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    fn try_claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("diana-testing-port-{number}")).ok()?;
        let claim = UnixDatagram::bind_addr(&name).ok()?;
        let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        (free(number) && free(number + BUS)).then_some(Self { number, _claim: claim })
    }
}
