//! A small site on two ports, whose pages link to each other. Both hosts ask for a pause now and then.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::Url;
use std::error::Error;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;

/// The number of pages: the even ones on the first host, the odd ones on the second.
pub(crate) const PAGES: usize = 40;

pub(crate) struct Site {
    hosts: [SocketAddr; 2],
    requests: Arc<[AtomicUsize; 2]>,
}

/// The state of one host.
struct Host {
    mode: PauseMode,
    hosts: [SocketAddr; 2],
    /// The number of requests that each host received.
    requests: Arc<[AtomicUsize; 2]>,
}

/// How a host asks for a pause.
#[derive(Clone, Copy)]
enum PauseMode {
    /// Serves every tenth request, too, and reports that nothing remains for a second.
    Header = 0,
    /// Denies every ninth request, with `Retry-After`.
    Deny = 1,
}

impl Site {
    pub(crate) async fn start() -> io::Result<Self> {
        let listeners = [TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?];
        let hosts = [listeners[0].local_addr()?, listeners[1].local_addr()?];
        let requests = Arc::<[AtomicUsize; 2]>::default();
        for (listener, mode) in listeners.into_iter().zip([PauseMode::Header, PauseMode::Deny]) {
            let host = Arc::new(Host { mode, hosts, requests: Arc::clone(&requests) });
            let app = Router::new().fallback(respond).with_state(host);
            tokio::spawn(async move { axum::serve(listener, app).await });
        }
        Ok(Self { hosts, requests })
    }

    /// Returns the start pages.
    pub(crate) fn roots(&self) -> Result<Vec<Url>, Box<dyn Error>> {
        Ok(vec![self.address(0).parse()?, self.address(1).parse()?])
    }

    /// Returns the URL of a page.
    pub(crate) fn address(&self, page: usize) -> String {
        address(self.hosts, page)
    }

    /// Returns the number of requests that each host received.
    pub(crate) fn requests(&self) -> [usize; 2] {
        [self.requests[0].load(Ordering::Relaxed), self.requests[1].load(Ordering::Relaxed)]
    }
}

fn address(hosts: [SocketAddr; 2], page: usize) -> String {
    format!("http://{}/page/{page}", hosts[page % 2])
}

async fn respond(State(host): State<Arc<Host>>, request: Request) -> Response {
    let number = host.requests[host.mode as usize].fetch_add(1, Ordering::Relaxed) + 1;
    let mut headers = HeaderMap::new();
    match host.mode {
        PauseMode::Deny if number.is_multiple_of(9) => {
            return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response();
        }
        PauseMode::Header if number.is_multiple_of(10) => {
            headers.insert("ratelimit", HeaderValue::from_static("\"site\";r=0;t=1"));
        }
        PauseMode::Header | PauseMode::Deny => {}
    }
    let page = request.uri().path().strip_prefix("/page/").and_then(|page| page.parse().ok());
    match (request.uri().path(), page) {
        ("/robots.txt", _) => (headers, "User-agent: *\nDisallow: /private\n").into_response(),
        (_, Some(page)) if page < PAGES => (headers, Html(html(host.hosts, page))).into_response(),
        _ => (StatusCode::NOT_FOUND, headers).into_response(),
    }
}

/// Returns a page with links to three others, to the first, and to a disallowed path.
fn html(hosts: [SocketAddr; 2], page: usize) -> String {
    let mut html =
        format!("<h1>Page {page}</h1> <a href=\"{}\">home</a> <a href=\"/private\">.</a>", address(hosts, 0));
    for next in (page * 3 + 1..=page * 3 + 3).filter(|next| *next < PAGES) {
        // Writing to a string does not fail.
        let _ = write!(html, " <a href=\"{}#top\">{next}</a>", address(hosts, next));
    }
    html
}
