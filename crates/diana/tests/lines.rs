//! Requests that stand in line.
