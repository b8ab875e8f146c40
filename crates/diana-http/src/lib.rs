//! Diana as a filter for HTTP.
