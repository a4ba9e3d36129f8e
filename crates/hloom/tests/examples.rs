//! The examples do what they say: each checks its own result and fails if it is wrong.

macro_rules! example {
    ($name:ident, $path:literal) => {
        #[path = $path]
        mod $name;

        #[test]
        fn $name() {
            $name::main().unwrap();
        }
    };
}

example!(tensor_parallel_mlp, "../examples/tensor_parallel_mlp.rs");
example!(fsdp_mlp, "../examples/fsdp_mlp.rs");
example!(mnist_data_parallel, "../examples/mnist_data_parallel.rs");
