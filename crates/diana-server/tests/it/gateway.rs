//! The gateway as it runs: the program itself on real sockets, a service behind it that notes every byte, and clients before it,
//! good ones and bad ones.
//!
//! One program for all, since each would take as long to link: `cargo test -p diana-server --test gateway smuggling` runs a part.

mod bodies;
mod clients;
mod floods;
mod heads;
mod http2;
mod operations;
mod paths;
mod proxies;
mod regressions;
mod slow;
mod smuggling;
mod tls;
mod upstreams;
