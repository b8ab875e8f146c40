//! Responses to clients: their [body], and those that the gateway creates itself ([`local_response`]).

mod body;
pub(crate) mod local_response;

pub(crate) use body::ResponseBody;
