//! The semantic difference of two modules: names, ids and the order of independent instructions set aside.
