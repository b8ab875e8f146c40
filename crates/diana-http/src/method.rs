//! Methods in other letter case than theirs. HTTP tells methods apart by case, and many services do not: Flask takes `post` for
//! `POST`.

/// The methods that every service knows.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// A method as rules compare it: in capitals, if it is one of HTTP's in other letter case.
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
