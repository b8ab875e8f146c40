//! Load shedding: the load of the machine, and which requests it denies.
//!
//! ```text
//!  a sampler ──set_cpu, set_memory──▶ ┌───────────┐        ┌──────────┐
//!  a gateway ──connections, traffic─▶ │ LoadMeter │ ─────▶ │ Shedding │ ──▶ whether a request is denied
//!  either    ──tick───────────────▶   └───────────┘        └──────────┘
//!                                      one per process      one per rule
//! ```

mod meter;
mod shedding;

pub use meter::LoadMeter;
pub(crate) use shedding::Sheddings;
