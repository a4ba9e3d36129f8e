//! What is true of a module: cost, devices, dataflow.
