//! Clients of reqwest wait for their limits and respect retry times, over real connections and on time that the tests
//! control.

mod client_limit;
mod retry_after;
mod server;
mod virtual_time;
