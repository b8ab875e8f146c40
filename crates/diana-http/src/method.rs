//! Methods in another letter case. HTTP methods are case-sensitive, but not in many services: Flask treats `post` as
//! `POST`.

/// The methods of HTTP.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Returns a method as rules compare it: in upper case, if it is one of HTTP's in another letter case.
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
