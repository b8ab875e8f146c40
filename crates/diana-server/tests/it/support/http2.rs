//! HTTP/2 and TLS: clients of the gateway, and an upstream with both.
//!
//! A gateway that stops waits for the PING ack of its HTTP/2 clients. So a test that drops one needs a runtime with
//! other threads than its own (`flavor = "multi_thread"`), or it deadlocks.

use super::program::LONG;
use bytes::Bytes;
use diana_testing::Port;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Sends requests over one HTTP/2 connection.
pub(crate) type Sender = http2::SendRequest<BoxBody<Bytes, Infallible>>;

pub(crate) fn full(body: impl Into<Bytes>) -> BoxBody<Bytes, Infallible> {
    BoxBody::new(Full::new(body.into()))
}

/// Opens an HTTP/2 connection without TLS.
pub(crate) async fn connect(port: u16) -> Sender {
    over(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap()).await
}

/// HTTP/2 over a stream.
pub(crate) async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Sender {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// HTTP/1.1 over a stream.
pub(crate) async fn http1_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> http1::SendRequest<BoxBody<Bytes, Infallible>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn request(method: &str, uri: &str) -> http::request::Builder {
    Request::builder().method(method).uri(uri)
}

/// Sends a GET for a URI, and reads the whole response.
pub(crate) async fn get(sender: &mut Sender, uri: &str) -> Response<Bytes> {
    whole(sender.send_request(request("GET", uri).body(full("")).unwrap()).await.unwrap()).await
}

/// Reads the whole response. Fails if it does not arrive.
pub(crate) async fn whole(response: Response<Incoming>) -> Response<Bytes> {
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(LONG, body.collect()).await.expect("the response did not end").unwrap();
    Response::from_parts(head, body.to_bytes())
}

/// Creates a self-signed certificate for these names, as files `NAME.pem` and `NAME.key` in a folder.
pub(crate) fn certificate(folder: &Path, name: &str, hosts: &[&str]) {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(hosts).unwrap();
    // The key first, and each atomically: a concurrent reader must not find partial files.
    for (end, text) in [("key", signing_key.serialize_pem()), ("pem", cert.pem())] {
        let new = folder.join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, folder.join(format!("{name}.{end}"))).unwrap();
    }
}

/// Opens a TLS connection that trusts only these certificates.
pub(crate) async fn tls(
    port: u16,
    trusted: &[&Path],
    host: &str,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    for trusted in trusted {
        roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(host.to_owned()).unwrap(), socket).await
}

/// An upstream with HTTP/2, or either version over TLS; it responds with the request, and trailers.
pub(crate) struct Service {
    port: Port,
    requests: Arc<Mutex<Vec<ServiceRequest>>>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct ServiceRequest {
    pub(crate) version: Version,
    pub(crate) host: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// The protocol of a [`Service`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Service {
    /// Starts an upstream with HTTP/2 without TLS.
    pub(crate) fn h2c() -> Self {
        Self::start(None, Protocol::Http2)
    }

    /// Starts an upstream with TLS, with a certificate that [`certificate`] made; it offers only this protocol.
    pub(crate) fn https(folder: &Path, name: &str, protocol: Protocol) -> Self {
        let chain = vec![CertificateDer::from_pem_file(folder.join(format!("{name}.pem"))).unwrap()];
        let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        let alpn: &[u8] = if protocol == Protocol::Http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![alpn.to_vec()];
        Self::start(Some(TlsAcceptor::from(Arc::new(config))), protocol)
    }

    fn start(tls: Option<TlsAcceptor>, protocol: Protocol) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (port, requests) = (Port::claim().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let number = port.number();
        let all = Arc::clone(&requests);
        // Bound before the task starts: the caller may be on its own runtime, where it can't block on this.
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        listener.set_nonblocking(true).unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let (tls, all) = (tls.clone(), Arc::clone(&all));
                tokio::spawn(async move {
                    match tls {
                        None => serve(socket, protocol, all).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(socket).await {
                                serve(stream, protocol, all).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, requests, runtime: Some(runtime) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the last received request.
    pub(crate) fn last(&self) -> ServiceRequest {
        self.requests.lock().last().cloned().expect("no request reached the service")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    protocol: Protocol,
    requests: Arc<Mutex<Vec<ServiceRequest>>>,
) {
    let service = service_fn(move |request| {
        let requests = Arc::clone(&requests);
        async move { respond(request, &requests).await }
    });
    let io = TokioIo::new(stream);
    let _ = match protocol {
        Protocol::Http1 => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
        Protocol::Http2 => {
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
        }
    };
}

async fn respond(
    request: Request<Incoming>,
    requests: &Mutex<Vec<ServiceRequest>>,
) -> hyper::Result<Response<BoxBody<Bytes, Infallible>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    let in_header = || head.headers.get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    let host = head.uri.authority().map(ToString::to_string).or_else(in_header).unwrap_or_default();
    let received = ServiceRequest {
        version: head.version,
        host,
        target: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: head.headers,
        body: body.to_bytes(),
        trailers,
    };
    let body = received.body.clone();
    requests.lock().push(received);
    let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), HeaderValue::from_static("42"))]);
    // In chunks, so that the length is not known in advance: with a known length, HTTP/1 has no trailers.
    let frames = [Frame::data(body), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
    let body = StreamBody::new(futures_util::stream::iter(frames));
    let mut response = Response::new(BoxBody::new(body));
    response.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
    Ok(response)
}
