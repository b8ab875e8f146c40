//! Clients of reqwest wait for their turn and heed what hosts say, over real connections and on time that the tests own.

mod heeding;
mod site;
mod waiting;
mod world;
