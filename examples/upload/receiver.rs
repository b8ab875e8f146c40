//! The receiver: accepts one upload on this machine, and reports what arrived.

use super::checksum::Checksum;
use std::io;
use std::net::SocketAddr;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Accepts one upload.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    task: JoinHandle<io::Result<Checksum>>,
}

impl Receiver {
    /// Listens on a free local port.
    pub(crate) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let (mut upload, _) = listener.accept().await?;
            let (mut checksum, mut buffer) = (Checksum::default(), vec![0; 16 * 1024]);
            loop {
                match upload.read(&mut buffer).await? {
                    0 => return Ok(checksum),
                    read => checksum.add(buffer.get(..read).unwrap_or_default()),
                }
            }
        });
        Ok(Self { address, task })
    }

    /// Waits for the end of the upload. Returns the checksum of what arrived.
    pub(crate) async fn finish(self) -> io::Result<Checksum> {
        self.task.await.map_err(io::Error::other)?
    }
}
