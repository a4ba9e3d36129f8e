// Which devices meet, and in which order, in the strategies of a grid of two replicas and two partitions.

module @replicas_with_all_their_partitions {
  func.func @gather(%x: tensor<1xi64>) -> tensor<4xi64> {
    %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<1xi64>) -> tensor<4xi64>
    return %0 : tensor<4xi64>
  }
  // (0, 0), (1, 0), (0, 1), (1, 1): the replicas of a partition come first.
  func.func @main() {
    %a = stablehlo.constant dense<1> : tensor<1xi64>
    %b = stablehlo.constant dense<2> : tensor<1xi64>
    %c = stablehlo.constant dense<3> : tensor<1xi64>
    %d = stablehlo.constant dense<4> : tensor<1xi64>
    %r:4 = "interpreter.run_parallel"(%a, %b, %c, %d) {programs = [[@gather, @gather], [@gather, @gather]]} : (tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> (tensor<4xi64>, tensor<4xi64>, tensor<4xi64>, tensor<4xi64>)
    check.expect_eq_const %r#0, dense<[1, 3, 2, 4]> : tensor<4xi64>
    check.expect_eq_const %r#3, dense<[1, 3, 2, 4]> : tensor<4xi64>
    func.return
  }
}

// -----

module @parts_go_where_they_would_come_from {
  func.func @scatter(%x: tensor<4xi64>) -> tensor<1xi64> {
    %0 = "stablehlo.reduce_scatter"(%x) ({
    ^bb0(%a: tensor<i64>, %b: tensor<i64>):
      %1 = stablehlo.add %a, %b : tensor<i64>
      stablehlo.return %1 : tensor<i64>
    }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<4xi64>) -> tensor<1xi64>
    return %0 : tensor<1xi64>
  }
  func.func @main() {
    %x = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi64>
    %r:4 = "interpreter.run_parallel"(%x, %x, %x, %x) {programs = [[@scatter, @scatter], [@scatter, @scatter]]} : (tensor<4xi64>, tensor<4xi64>, tensor<4xi64>, tensor<4xi64>) -> (tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>)
    check.expect_eq_const %r#0, dense<4> : tensor<1xi64>
    check.expect_eq_const %r#1, dense<12> : tensor<1xi64>
    check.expect_eq_const %r#2, dense<8> : tensor<1xi64>
    check.expect_eq_const %r#3, dense<16> : tensor<1xi64>
    func.return
  }
}

// -----

module @one_partition_only {
  func.func @gather(%x: tensor<1xi64>) -> tensor<2xi64> {
    %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>} : (tensor<1xi64>) -> tensor<2xi64>
    return %0 : tensor<2xi64>
  }
  func.func @main() {
    %a = stablehlo.constant dense<1> : tensor<1xi64>
    %b = stablehlo.constant dense<2> : tensor<1xi64>
    %c = stablehlo.constant dense<3> : tensor<1xi64>
    %d = stablehlo.constant dense<4> : tensor<1xi64>
    %r:4 = "interpreter.run_parallel"(%a, %b, %c, %d) {programs = [[@gather, @gather], [@gather, @gather]]} : (tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> (tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>)
    check.expect_eq_const %r#0, dense<[3, 1]> : tensor<2xi64>
    check.expect_eq_const %r#1, dense<[4, 2]> : tensor<2xi64>
    func.return
  }
}

// -----

module @devices_by_number {
  func.func @gather(%x: tensor<1xi64>) -> tensor<2xi64> {
    %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[3, 0], [2, 1]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<1xi64>) -> tensor<2xi64>
    return %0 : tensor<2xi64>
  }
  func.func @main() {
    %a = stablehlo.constant dense<1> : tensor<1xi64>
    %b = stablehlo.constant dense<2> : tensor<1xi64>
    %c = stablehlo.constant dense<3> : tensor<1xi64>
    %d = stablehlo.constant dense<4> : tensor<1xi64>
    %r:4 = "interpreter.run_parallel"(%a, %b, %c, %d) {programs = [[@gather, @gather], [@gather, @gather]]} : (tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> (tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>)
    check.expect_eq_const %r#0, dense<[4, 1]> : tensor<2xi64>
    check.expect_eq_const %r#1, dense<[3, 2]> : tensor<2xi64>
    func.return
  }
}

// -----

module @partitions_exchange {
  func.func @exchange(%x: tensor<2x2xi64>) -> tensor<4x1xi64> {
    %0 = "stablehlo.all_to_all"(%x) {split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<2x2xi64>) -> tensor<4x1xi64>
    return %0 : tensor<4x1xi64>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>
    %b = stablehlo.constant dense<[[5, 6], [7, 8]]> : tensor<2x2xi64>
    %r:2 = "interpreter.run_parallel"(%a, %b) {programs = [[@exchange, @exchange]]} : (tensor<2x2xi64>, tensor<2x2xi64>) -> (tensor<4x1xi64>, tensor<4x1xi64>)
    check.expect_eq_const %r#0, dense<[[1], [3], [5], [7]]> : tensor<4x1xi64>
    check.expect_eq_const %r#1, dense<[[2], [4], [6], [8]]> : tensor<4x1xi64>
    func.return
  }
}

// -----

module @who_is_not_named_gets_zeros {
  func.func @share(%x: tensor<1x2xi64>) -> tensor<1x2xi64> {
    %0 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>} : (tensor<1x2xi64>) -> tensor<1x2xi64>
    return %0 : tensor<1x2xi64>
  }
  func.func @pass(%x: tensor<1x2xi64>) -> tensor<1x2xi64> {
    %0 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>} : (tensor<1x2xi64>) -> tensor<1x2xi64>
    return %0 : tensor<1x2xi64>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[[1, 2]]> : tensor<1x2xi64>
    %b = stablehlo.constant dense<[[3, 4]]> : tensor<1x2xi64>
    %c = stablehlo.constant dense<[[5, 6]]> : tensor<1x2xi64>
    %r:3 = "interpreter.run_parallel"(%a, %b, %c) {programs = [[@share], [@share], [@share]]} : (tensor<1x2xi64>, tensor<1x2xi64>, tensor<1x2xi64>) -> (tensor<1x2xi64>, tensor<1x2xi64>, tensor<1x2xi64>)
    check.expect_eq_const %r#0, dense<[[0, 0]]> : tensor<1x2xi64>
    check.expect_eq_const %r#1, dense<[[5, 6]]> : tensor<1x2xi64>
    check.expect_eq_const %r#2, dense<[[5, 6]]> : tensor<1x2xi64>
    %s:3 = "interpreter.run_parallel"(%a, %b, %c) {programs = [[@pass], [@pass], [@pass]]} : (tensor<1x2xi64>, tensor<1x2xi64>, tensor<1x2xi64>) -> (tensor<1x2xi64>, tensor<1x2xi64>, tensor<1x2xi64>)
    check.expect_eq_const %s#0, dense<[[0, 0]]> : tensor<1x2xi64>
    check.expect_eq_const %s#1, dense<[[1, 2]]> : tensor<1x2xi64>
    check.expect_eq_const %s#2, dense<[[3, 4]]> : tensor<1x2xi64>
    func.return
  }
}
