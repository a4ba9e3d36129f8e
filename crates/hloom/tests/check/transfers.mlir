// Programs that send to each other, and take from outside.

module @one_sends_and_the_other_receives {
  func.func @sender(%x: tensor<2xi64>, %t: !stablehlo.token) -> !stablehlo.token {
    %0 = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
    return %0 : !stablehlo.token
  }
  func.func @receiver(%t: !stablehlo.token) -> (tensor<2xi64>, !stablehlo.token) {
    %0, %1 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    return %0, %1 : tensor<2xi64>, !stablehlo.token
  }
  func.func @main() {
    %t = stablehlo.create_token : !stablehlo.token
    %x = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    %r:3 = "interpreter.run_parallel"(%x, %t, %t) {programs = [[@sender], [@receiver]]} : (tensor<2xi64>, !stablehlo.token, !stablehlo.token) -> (!stablehlo.token, tensor<2xi64>, !stablehlo.token)
    check.expect_eq_const %r#1, dense<[1, 2]> : tensor<2xi64>
    func.return
  }
}

// -----

module @what_is_fed_comes_in_order {
  func.func @first() -> tensor<2xi64> {
    %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    return %0 : tensor<2xi64>
  }
  func.func @second() -> (tensor<2xi64>, !stablehlo.token) {
    %0 = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
    %1 = stablehlo.create_token : !stablehlo.token
    return %0, %1 : tensor<2xi64>, !stablehlo.token
  }
  func.func @takes(%t: !stablehlo.token) -> (tensor<2xi64>, tensor<2xi64>) {
    %0:2 = "stablehlo.infeed"(%t) {infeed_config = "", layout = [[0]]} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    %1:2 = "stablehlo.infeed"(%0#1) {infeed_config = "", layout = [[0]]} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    return %0#0, %1#0 : tensor<2xi64>, tensor<2xi64>
  }
  func.func @main() {
    %t = stablehlo.create_token : !stablehlo.token
    %r:2 = "interpreter.run_parallel"(%t) {infeed = [@first, @second], programs = [[@takes]]} : (!stablehlo.token) -> (tensor<2xi64>, tensor<2xi64>)
    check.expect_eq_const %r#0, dense<[1, 2]> : tensor<2xi64>
    check.expect_eq_const %r#1, dense<[3, 4]> : tensor<2xi64>
    func.return
  }
}

// -----

func.func @what_is_watched_stays_as_it_is() {
  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %1 = interpreter.probe %0, probe_id = "here" : tensor<2xi64>
  check.expect_eq_const %1, dense<[1, 2]> : tensor<2xi64>
  func.return
}
