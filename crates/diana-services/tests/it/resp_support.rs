//! A server of the Redis protocol on a real socket, and a client that shows replies as text.

use diana::rules::{Document, RuleFile};
use diana::{Clock, Engine, EngineOptions, SystemClock};
use diana_metrics::ServiceMetrics;
use diana_services::resp::{RespState, serve};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) const RULES: &str = "
rules:
  - {name: each-account, by: account, match: {path: /api/**}, limit: 3/h}
  - {name: searches, by: ip, match: {path: /search}, limit: {rate: 10/h, burst: 5}}
";

pub(crate) fn file(text: &str) -> RuleFile {
    let document = Document::new("diana.yaml", text);
    RuleFile::read_with(&document, &diana::registry(), |_| None).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A server; dropping it closes all connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) metrics: ServiceMetrics,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(RULES, SystemClock, RespState::default()).await
    }

    pub(crate) async fn with(rules: &str, clock: impl Clock, state: RespState) -> Self {
        let file = file(rules);
        Self::of(EngineOptions::of(&file).clock(clock).build(&file), state).await
    }

    pub(crate) async fn of(engine: Engine, state: RespState) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, engine) = (listener.local_addr().unwrap(), engine);
        let metrics = ServiceMetrics::new("resp", 1);
        let state = Arc::new(state.metrics(metrics.clone(), 0));
        let (stop, mut stopped) = watch::channel(false);
        let shared_engine = engine.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, peer) = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap(),
                    _ = stopped.changed() => break,
                };
                stream.set_nodelay(true).unwrap();
                let (engine, state, mut stopped) = (shared_engine.clone(), Arc::clone(&state), stopped.clone());
                connections.spawn(async move {
                    let stop = async move {
                        let _ = stopped.wait_for(|stopped| *stopped).await;
                    };
                    // Clients that disconnect are not a failure of the server.
                    let _ = serve(stream, Some(peer), engine, state, stop).await;
                });
            }
            while connections.join_next().await.is_some() {}
        });
        Self { address, engine, metrics, stop, tasks }
    }

    pub(crate) async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (read, write) = stream.into_split();
        Client { read: BufReader::new(read), write }
    }

    /// Stops the server, and waits until all connections are closed.
    pub(crate) async fn stop(mut self) {
        self.stop.send(true).unwrap();
        while let Some(done) = self.tasks.join_next().await {
            done.unwrap();
        }
    }
}

/// A client.
pub(crate) struct Client {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

/// A command as an array of bulk strings.
pub(crate) fn encode(args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        bytes.extend_from_slice(arg.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).await.unwrap();
    }

    /// Sends a command, in words separated by blanks, and returns its reply.
    pub(crate) async fn ask(&mut self, command: &str) -> String {
        self.send(&encode(&command.split_ascii_whitespace().collect::<Vec<_>>())).await;
        self.reply().await
    }

    /// Returns the next reply as text: lists in brackets, strings with quotes.
    pub(crate) async fn reply(&mut self) -> String {
        self.try_reply().await.expect("the server closed the connection")
    }

    /// The same; `None` if the server closed the connection.
    pub(crate) async fn try_reply(&mut self) -> Option<String> {
        let line = self.line().await?;
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<usize>().unwrap();
        Some(match kind {
            "+" | "-" => rest.to_owned(),
            ":" => rest.to_owned(),
            "_" => "nil".to_owned(),
            "$" if rest == "-1" => "nil".to_owned(),
            "$" | "=" => {
                let mut bytes = vec![0; count() + 2];
                self.read.read_exact(&mut bytes).await.unwrap();
                assert!(bytes.ends_with(b"\r\n"));
                bytes.truncate(bytes.len() - 2);
                format!("\"{}\"", bytes.escape_ascii())
            }
            "*" | "~" => format!("[{}]", self.replies(count()).await.join(" ")),
            "%" => format!("{{{}}}", self.replies(count() * 2).await.join(" ")),
            _ => panic!("unexpected reply {line:?}"),
        })
    }

    pub(crate) async fn replies(&mut self, count: usize) -> Vec<String> {
        let mut replies = Vec::new();
        for _ in 0..count {
            replies.push(Box::pin(self.reply()).await);
        }
        replies
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.read.read_u8().await.ok()?);
        }
        line.truncate(line.len() - 2);
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    /// Closes the sending side.
    pub(crate) async fn end(&mut self) {
        self.write.shutdown().await.unwrap();
    }
}
