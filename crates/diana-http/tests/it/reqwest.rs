//! Clients of reqwest wait for their limits and respect retry times, over real connections and on time that the tests
//! control.

mod heeding;
mod site;
mod waiting;
mod world;
