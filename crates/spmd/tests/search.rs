//! The search for layouts: never worse than schemes by hand, within memory, and as many tries for many layers as for few.

mod support;

use hloom_spmd::search::{Found, Role, SearchOptions, search};
use hloom_target::Target;

/// Layers of two products each, with a sum around them; every layer has weights of its own.
fn layers(count: usize, batch: i64) -> String {
    let (width, hidden) = (256, 1024);
    let mut text = format!("HloModule m\nENTRY e {{\n  x0 = f32[{batch},{width}] parameter(0)\n");
    for n in 0..count {
        let (up, down) = (2 * n + 1, 2 * n + 2);
        text.push_str(&format!(
            "  up{n} = f32[{width},{hidden}] parameter({up})
  down{n} = f32[{hidden},{width}] parameter({down})
  h{n} = f32[{batch},{hidden}] dot(x{n}, up{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t{n} = f32[{batch},{hidden}] tanh(h{n})
  y{n} = f32[{batch},{width}] dot(t{n}, down{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  x{} = f32[{batch},{width}] add(x{n}, y{n})\n",
            n + 1
        ));
    }
    text.push_str(&format!("  ROOT r = f32[{batch},{width}] negate(x{count})\n}}\n"));
    text
}

fn found(text: &str, mesh: &[i64], memory_limit: Option<u64>) -> Found {
    let target = Target::named("tpu-v4").expect("there is one");
    let options = SearchOptions { mesh: mesh.to_vec(), memory_limit, target: &target, budget: 100_000 };
    search(&support::read(text), &options).unwrap_or_else(|d| panic!("{d:?}"))
}

#[test]
fn what_is_found_is_no_worse_than_any_scheme() {
    for (batch, mesh) in [(64, &[2, 4][..]), (8, &[8]), (4096, &[4, 2]), (6, &[2, 2])] {
        let made = found(&layers(3, batch), mesh, None);
        let least = made.schemes.iter().map(|s| s.price.seconds).fold(f64::INFINITY, f64::min);
        assert!(made.best.price.seconds <= least, "{} against {least}", made.best.price.seconds);
        assert!(made.schemes.windows(2).all(|w| w[0].price.seconds <= w[1].price.seconds * 1.000_01));
    }
}

#[test]
fn memory_comes_before_time() {
    let free = found(&layers(4, 64), &[2, 4], None);
    let least = free.schemes.iter().map(|s| s.price.memory_bytes).min().expect("schemes were tried");
    let tight = found(&layers(4, 64), &[2, 4], Some(least));
    assert!(tight.best.price.memory_bytes <= least);
    assert!(tight.best.price.seconds >= free.best.price.seconds);
}

#[test]
fn layers_that_repeat_are_one_class_and_take_no_more_tries() {
    let (few, many) = (found(&layers(2, 64), &[2, 2], None), found(&layers(24, 64), &[2, 2], None));
    assert_eq!(few.classes.len(), many.classes.len());
    assert_eq!(many.classes.iter().map(|c| c.members.len()).max(), Some(24));
    assert_eq!(few.activations.len(), many.activations.len());
    assert!(many.tries <= few.tries + 8, "{} against {}", many.tries, few.tries);
    // The first layer is not like the others: it reads a parameter.
    assert_eq!((few.layers, many.layers), (None, Some(23)));
    let data = many.classes.iter().find(|c| c.members == [0]).expect("the data");
    assert_eq!(data.roles, [Role::Batch, Role::Width]);
}

#[test]
fn a_mesh_that_is_none_is_refused() {
    let target = Target::named("tpu-v4").expect("there is one");
    for mesh in [vec![], vec![2; 5], vec![2, 0]] {
        let options = SearchOptions { mesh, memory_limit: None, target: &target, budget: 1000 };
        assert!(search(&support::read(&layers(1, 8)), &options).is_err());
    }
}
