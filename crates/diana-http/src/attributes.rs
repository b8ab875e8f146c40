//! The attributes of an HTTP request for rules.

use crate::cookies::{Cookies, with_several_values};
use crate::pairs::value_or_several;
use crate::path::{forms, is_normal};
use crate::query::Query;
use crate::scheme::RequestScheme;
use diana::rules::attributes::{Doubt, SEVERAL};
use diana::rules::matching::split_host;
use diana::rules::{Attribute, Attributes};
use http::header::{COOKIE, Entry, HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::OnceLock;

/// An HTTP request as rules see it.
///
/// ```
/// use diana::rules::{Attribute, Attributes};
/// use diana_http::HttpAttributes;
/// use http::Request;
///
/// let request = Request::get("/search/../sms?to=%2B47").header("cookie", "plan=free").body(())?;
/// let request = HttpAttributes::of(&request, None);
/// assert_eq!(request.get(&Attribute::Path).as_deref(), Some("/sms"));
/// assert_eq!(request.get(&Attribute::Query("to".into())).as_deref(), Some("+47"));
/// assert_eq!(request.get(&Attribute::Cookie("plan".into())).as_deref(), Some("free"));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HttpAttributes<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    client: Option<IpAddr>,
    scheme: RequestScheme,
    query: Query<'a>,
    cookies: Cookies<'a>,
    /// Whether the path is already normal, so that it has one form.
    has_normal_path: bool,
    /// Otherwise its forms, computed at the first use.
    forms: OnceLock<(Cow<'a, str>, Vec<String>)>,
}

impl<'a> HttpAttributes<'a> {
    /// Creates the attributes of a request of this client.
    pub fn of<B>(request: &'a Request<B>, client: Option<IpAddr>) -> Self {
        Self::new(request.method(), request.uri(), request.headers(), client)
    }

    /// Creates the attributes of a request of this client, from its head.
    pub fn of_head(head: &'a Parts, client: Option<IpAddr>) -> Self {
        Self::new(&head.method, &head.uri, &head.headers, client)
    }

    fn new(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap, client: Option<IpAddr>) -> Self {
        let (query, cookies, has_normal_path) = (Query::new(uri.query()), Cookies::new(headers), is_normal(uri.path()));
        let scheme = RequestScheme::default();
        Self { method, uri, headers, client, scheme, query, cookies, has_normal_path, forms: OnceLock::new() }
    }

    /// Sets what is known about its scheme.
    #[must_use]
    pub fn with_scheme(self, scheme: RequestScheme) -> Self {
        Self { scheme, ..self }
    }

    /// Returns the host of the request, without its port: the URI takes precedence over the header.
    fn host(&self) -> Option<Cow<'a, str>> {
        let host = match self.uri.authority() {
            Some(authority) => authority.as_str().rsplit('@').next()?.as_bytes(),
            None => self.headers.get(HOST)?.as_bytes().trim_ascii(),
        };
        Some(split_host(host).map_or_else(|| String::from_utf8_lossy(host), |(host, _)| Cow::Borrowed(host)))
    }

    fn path(&self) -> &str {
        if self.has_normal_path { self.uri.path() } else { &self.forms().0 }
    }

    /// Returns the decoded form of the path, and the others.
    #[cold]
    fn forms(&self) -> &(Cow<'a, str>, Vec<String>) {
        self.forms.get_or_init(|| forms(self.uri.path()))
    }

    fn header(&self, name: &str) -> Option<Cow<'a, str>> {
        let values = self.headers.get_all(name).into_iter();
        value_or_several(values.map(|value| String::from_utf8_lossy(value.as_bytes().trim_ascii())))
    }
}

impl Attributes for HttpAttributes<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Ip => self.client.map(|client| Cow::Owned(client.to_string())),
            Attribute::Method => Some(Cow::Borrowed(normal_method(self.method.as_str()))),
            Attribute::Path => Some(Cow::Borrowed(self.path())),
            Attribute::Host => self.host(),
            Attribute::Scheme => self.scheme.value(self.headers).map(Cow::Borrowed),
            Attribute::Header(name) => self.header(name),
            Attribute::Cookie(name) => self.cookies.get(name),
            Attribute::Query(name) => self.query.get(name),
            // Tokens and named attributes come from the file's `identity`, path parameters from a rule.
            _ => None,
        }
    }

    fn other_paths(&self) -> &[String] {
        if self.has_normal_path { &[] } else { &self.forms().1 }
    }

    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        // Every request has an address, so a rule that counts by it must not skip those whose server has not passed it on.
        (*attribute == Attribute::Ip && self.client.is_none()).then_some(Doubt::Unknown)
    }

    fn ip(&self) -> Option<IpAddr> {
        self.client
    }
}

/// Makes the values of a header ambiguous to rules ([`SEVERAL`]), if the request has it: for a header that the service may
/// or may not get, so that its value must not be a key.
///
/// ```
/// use diana::rules::{Attribute, Attributes};
/// use diana_http::{HttpAttributes, set_several};
/// use http::Request;
/// use http::header::COOKIE;
///
/// let mut request = Request::get("/").header("cookie", "plan=free; id=7").body(())?;
/// set_several(request.headers_mut(), &COOKIE);
/// let request = HttpAttributes::of(&request, None);
/// assert_eq!(request.get(&Attribute::Cookie("id".into())).as_deref(), Some("(several)"));
/// assert_eq!(request.get(&Attribute::Cookie("device".into())), None);
/// # Ok::<(), http::Error>(())
/// ```
pub fn set_several(headers: &mut HeaderMap, name: &HeaderName) {
    let Entry::Occupied(mut values) = headers.entry(name) else { return };
    let several = HeaderValue::from_static(SEVERAL);
    if *name == COOKIE {
        values.iter_mut().for_each(|value| *value = with_several_values(value).unwrap_or_else(|| several.clone()));
    } else {
        values.insert(several);
    }
}

/// The methods of HTTP.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Returns a method as rules compare it: in upper case, if it is one of HTTP's in another letter case. HTTP methods are
/// case-sensitive, but not in many services: Flask treats `post` as `POST`.
///
/// ```
/// use diana_http::normal_method;
///
/// assert_eq!([normal_method("POST"), normal_method("pOsT"), normal_method("purge")], ["POST", "POST", "purge"]);
/// ```
pub fn normal_method(method: &str) -> &str {
    if !method.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return method;
    }
    METHODS.iter().find(|known| known.eq_ignore_ascii_case(method)).map_or(method, |known| known)
}
