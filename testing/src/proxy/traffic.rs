//! The traffic through a [`Proxy`](super::Proxy): two threads for each connection, one for each direction.
//!
//! # What always holds
//! A chunk's handling is decided under the lock that guards the mode. So bytes that arrive after a change of mode are
//! handled by the new mode, and no connection loses bytes without being marked as `lossy`.

use parking_lot::{Condvar, Mutex};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How bytes are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Pass,
    Delay(Duration),
    Swallow,
}

/// All connections of a proxy, and its counters.
#[derive(Debug)]
pub(super) struct Traffic {
    port: u16,
    state: Mutex<State>,
    /// Wakes the threads that wait for a delay.
    mode_changed: Condvar,
    accepted: AtomicU64,
    to_server: AtomicU64,
    to_clients: AtomicU64,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    open: Vec<Arc<Connection>>,
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    /// `None` if it was accepted by a black hole.
    server: Option<TcpStream>,
    /// Bytes, or a close, were not forwarded to it.
    lossy: AtomicBool,
}

/// The direction of bytes.
#[derive(Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

/// How a chunk is handled.
enum ChunkAction {
    Forward,
    Discard,
}

impl Traffic {
    pub(super) fn to(port: u16) -> Self {
        Self {
            port,
            state: Mutex::new(State { mode: Mode::Pass, open: Vec::new() }),
            mode_changed: Condvar::new(),
            accepted: AtomicU64::new(0),
            to_server: AtomicU64::new(0),
            to_clients: AtomicU64::new(0),
        }
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(super) fn to_server(&self) -> u64 {
        self.to_server.load(Ordering::SeqCst)
    }

    pub(super) fn to_clients(&self) -> u64 {
        self.to_clients.load(Ordering::SeqCst)
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        let mut state = self.state.lock();
        state.mode = mode;
        if mode != Mode::Swallow {
            state.open.extract_if(.., |connection| connection.is_lossy()).for_each(|connection| connection.close());
        }
        self.mode_changed.notify_all();
    }

    pub(super) fn drop_connections(&self) {
        self.state.lock().open.drain(..).for_each(|connection| connection.close());
    }

    /// Accepts until the listener is shut down.
    pub(super) fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while let Ok((client, _)) = listener.accept() {
            self.accepted.fetch_add(1, Ordering::SeqCst);
            // A client whose server can't be reached is disconnected, as it would be by a broken network.
            let _ = self.admit(client);
        }
    }

    fn admit(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        {
            // Checked and registered under one lock, so that the end of the black hole finds all of its connections.
            let mut state = self.state.lock();
            if state.mode == Mode::Swallow {
                let connection = Connection { client, server: None, lossy: AtomicBool::new(true) };
                state.open.push(Arc::new(connection));
                return Ok(());
            }
        }
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        server.set_nodelay(true)?;
        let connection = Arc::new(Connection { client, server: Some(server), lossy: AtomicBool::new(false) });
        self.state.lock().open.push(Arc::clone(&connection));
        for direction in [Direction::ToServer, Direction::ToClient] {
            let (traffic, connection) = (Arc::clone(self), Arc::clone(&connection));
            std::thread::Builder::new()
                .name("proxy-copy".to_owned())
                .spawn(move || traffic.forward(&connection, direction))?;
        }
        Ok(())
    }

    /// Forwards bytes in one direction until the end of the stream.
    fn forward(&self, connection: &Arc<Connection>, direction: Direction) {
        let Some((mut from, mut to, count)) = self.endpoints(connection, direction) else { return };
        let mut chunk = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let Some(bytes) = chunk.get(..length) else { break };
            match self.chunk_action(connection) {
                ChunkAction::Discard => {}
                ChunkAction::Forward => {
                    // Counted first, so that a client that has an answer finds it counted.
                    count.fetch_add(u64::try_from(length).unwrap_or(u64::MAX), Ordering::SeqCst);
                    if to.write_all(bytes).is_err() {
                        break;
                    }
                }
            }
        }
        self.end(connection);
    }

    fn endpoints<'a>(
        &'a self,
        connection: &'a Connection,
        direction: Direction,
    ) -> Option<(&'a TcpStream, &'a TcpStream, &'a AtomicU64)> {
        let (client, server) = (&connection.client, connection.server.as_ref()?);
        Some(match direction {
            Direction::ToServer => (client, server, &self.to_server),
            Direction::ToClient => (server, client, &self.to_clients),
        })
    }

    /// Decides how a chunk is handled, after its delay if there is one.
    fn chunk_action(&self, connection: &Connection) -> ChunkAction {
        let mut state = self.state.lock();
        loop {
            match state.mode {
                Mode::Pass => return ChunkAction::Forward,
                Mode::Swallow => {
                    connection.lossy.store(true, Ordering::SeqCst);
                    return ChunkAction::Discard;
                }
                mode @ Mode::Delay(delay) => {
                    let unchanged = |state: &mut State| state.mode == mode;
                    if self.mode_changed.wait_while_for(&mut state, unchanged, delay).timed_out() {
                        return ChunkAction::Forward;
                    }
                }
            }
        }
    }

    /// Closes the other end when one has closed; a black hole does not forward the close.
    fn end(&self, connection: &Arc<Connection>) {
        let mut state = self.state.lock();
        if state.mode == Mode::Swallow {
            connection.lossy.store(true, Ordering::SeqCst);
        } else {
            state.open.retain(|other| !Arc::ptr_eq(other, connection));
            connection.close();
        }
    }
}

impl Connection {
    fn is_lossy(&self) -> bool {
        self.lossy.load(Ordering::SeqCst)
    }

    fn close(&self) {
        // An error means that the peer has closed it already.
        let _ = self.client.shutdown(Shutdown::Both);
        if let Some(server) = &self.server {
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}
