//! Responses to clients: their [body], and those that the gateway creates itself ([`local_response`]).

mod body;
mod date_header;
pub(crate) mod local_response;

pub(crate) use body::ResponseBody;
pub(crate) use date_header::with_date;
