// The bits of numbers, the lowest first, and back.

func.func @eight_bits() {
  %0 = stablehlo.constant dense<[5, -128]> : tensor<2xi8>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2xi8>) -> tensor<2x8xi1>
  check.expect_eq_const %1, dense<[[true, false, true, false, false, false, false, false], [false, false, false, false, false, false, false, true]]> : tensor<2x8xi1>
  %2 = stablehlo.bitcast_convert %1 : (tensor<2x8xi1>) -> tensor<2xi8>
  check.expect_eq %2, %0 : tensor<2xi8>
  func.return
}

func.func @four_bits() {
  %0 = stablehlo.constant dense<[1, -2]> : tensor<2xi4>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2xi4>) -> tensor<2x4xi1>
  check.expect_eq_const %1, dense<[[true, false, false, false], [false, true, true, true]]> : tensor<2x4xi1>
  %2 = stablehlo.bitcast_convert %0 : (tensor<2xi4>) -> tensor<i8>
  check.expect_eq_const %2, dense<-31> : tensor<i8>
  func.return
}

func.func @floats() {
  %0 = stablehlo.constant dense<-1.5> : tensor<f32>
  %1 = stablehlo.bitcast_convert %0 : (tensor<f32>) -> tensor<32xi1>
  %2 = stablehlo.bitcast_convert %1 : (tensor<32xi1>) -> tensor<ui32>
  check.expect_eq_const %2, dense<0xBFC00000> : tensor<ui32>
  %3 = stablehlo.bitcast_convert %2 : (tensor<ui32>) -> tensor<4xui8>
  check.expect_eq_const %3, dense<[0, 0, 0xC0, 0xBF]> : tensor<4xui8>
  func.return
}

func.func @wide() {
  %0 = stablehlo.constant dense<0x0123456789ABCDEF> : tensor<i64>
  %1 = stablehlo.bitcast_convert %0 : (tensor<i64>) -> tensor<64xi1>
  %2 = stablehlo.bitcast_convert %1 : (tensor<64xi1>) -> tensor<i64>
  check.expect_eq %2, %0 : tensor<i64>
  func.return
}
