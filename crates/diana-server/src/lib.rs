//! The parts of the program `diana`, as a library: what its commands do, apart from how they are typed.
//!
//! So far there is [`import`]: moving in from nginx and from Envoy's rate limit service. What `check`, `explain` and `schema` do
//! is in `diana` and `diana-rules`; the program only reads files for them.

pub mod import;
