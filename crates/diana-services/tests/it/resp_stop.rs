//! A stop: commands that have arrived are answered, and no client can delay it.

use crate::resp_support::*;
use diana::ManualClock;
use diana_services::resp::{RespState, serve};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

#[tokio::test]
async fn idle_clients_are_disconnected_at_once() {
    let server = Server::start().await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = server.client().await;
        assert_eq!(client.ask("PING").await, "PONG");
        clients.push(client);
    }
    server.stop().await;
    for mut client in clients {
        assert_eq!(client.try_reply().await, None);
    }
}

/// One thread, so that the server has read nothing of it when it is stopped.
#[tokio::test]
async fn a_stop_answers_what_has_arrived() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default()).await;
    let mut clients = Vec::new();
    for key in 0..4 {
        let mut client = server.client().await;
        assert_eq!(client.ask("PING").await, "PONG");
        let call = encode(&["CL.THROTTLE", &key.to_string(), "1000000", "1", "1"]);
        // The last command is incomplete, and is not executed.
        client.send(&[call.repeat(1_000), call[..call.len() - 1].to_vec()].concat()).await;
        clients.push(client);
    }
    let answered = async {
        for mut client in clients {
            let replies = client.replies(1_000).await;
            assert_eq!(replies[999], "[0 1000001 999001 -1 1000]");
            assert_eq!(client.try_reply().await, None);
        }
    };
    tokio::join!(server.stop(), answered);
}

#[tokio::test]
async fn a_stop_answers_what_waits() {
    let file = file("rules: [{name: few, concurrent: 1, wait: 1h}]");
    let server = Server::of(diana::Engine::new(&file), RespState::default()).await;
    let request = diana::rules::attributes::SyntheticRequest::new("GET", "/");
    let held = server.engine.acquire(&request).await.unwrap();
    let mut client = server.client().await;
    client.send(b"PING\r\nDIANA.CHECK path /\r\n").await;
    // Then the check is queued.
    assert_eq!(client.reply().await, "PONG");
    let stopping = tokio::spawn(server.stop());
    tokio::task::yield_now().await;
    drop(held);
    assert!(client.reply().await.starts_with("[0 1 "));
    stopping.await.unwrap();
    assert_eq!(client.try_reply().await, None);
}

/// A client of which there is always more to read, until the server closes the connection. It stops the server.
struct Endless {
    reads: usize,
    stop: Option<oneshot::Sender<()>>,
    replies: Arc<AtomicUsize>,
    is_closed: bool,
}

impl AsyncRead for Endless {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.reads += 1;
        if self.reads == 40 {
            self.stop.take().unwrap().send(()).unwrap();
        }
        while !self.is_closed && buffer.remaining() >= 6 {
            buffer.put_slice(b"PING\r\n");
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, replies: &[u8]) -> Poll<io::Result<usize>> {
        self.replies.fetch_add(replies.len() / 7, Ordering::Relaxed);
        Poll::Ready(Ok(replies.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_closed = true;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_client_that_sends_without_pause_does_not_delay_a_stop() {
    let (stop, stopped) = oneshot::channel();
    let replies = Arc::<AtomicUsize>::default();
    let client = Endless { reads: 0, stop: Some(stop), replies: Arc::clone(&replies), is_closed: false };
    let engine = diana::Engine::new(&file(RULES));
    let stopped = async { stopped.await.unwrap() };
    serve(client, None, engine, Arc::new(RespState::default()), stopped).await.unwrap();
    assert!(replies.load(Ordering::Relaxed) >= 40);
}

/// A connection that is closed with unread bytes is reset, and a client may lose its last replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_without_pause_gets_whole_replies_and_an_end() {
    let server = Server::start().await;
    let (mut read, mut write) = TcpStream::connect(server.address).await.unwrap().into_split();
    let (begun, has_begun) = oneshot::channel();
    let reading = tokio::spawn(async move {
        let (mut buffer, mut begun) = (vec![0; 1 << 16], Some(begun));
        let mut bytes = 0;
        loop {
            match read.read(&mut buffer).await.unwrap() {
                0 => return bytes,
                count => bytes += count,
            }
            if let Some(begun) = begun.take() {
                begun.send(()).unwrap();
            }
        }
    });
    let writing = tokio::spawn(async move {
        let pings = b"PING\r\n".repeat(10_000);
        while write.write_all(&pings).await.is_ok() {}
    });
    has_begun.await.unwrap();
    let read = async {
        let bytes = reading.await.unwrap();
        writing.abort();
        bytes
    };
    let ((), bytes) = tokio::join!(server.stop(), read);
    assert!(bytes > 0 && bytes % 7 == 0, "{bytes}");
}
