//! How busy the machine is, and whom that keeps out.
//!
//! ```text
//!  a sampler ──set_cpu, set_memory──▶ ┌───────────┐        ┌──────────┐
//!  a gateway ──connections, traffic─▶ │ LoadMeter │ ─────▶ │ Shedding │ ──▶ whether a request is refused
//!  either    ──tick───────────────▶   └───────────┘        └──────────┘
//!                                      one a process        one a rule
//! ```

mod meter;
mod shedding;

pub use meter::LoadMeter;
pub(crate) use shedding::Sheddings;
