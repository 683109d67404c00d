; reduction columns=24 split=1 rows=8x1 online=False vectors=2 prefetch=0 streaming=False
;
; in0: (8, 24) float32
; in1: (8, 24) float32
; out0: (8, 24) float32
;
; kernel scan_scan_8x24: grid r.0 in 8  [lanes 4, vectors 2]
;   in0: (r 1, c 24) float32 = load in0[r.0 : +1, 0 : +24]
;   t: (r 1, c 24) float32 = neg(in0)
;   t2: (r 1, c 24) float32 = exp(t)
;   t3: (r 1, c 24) float32 = add(t2, 1)
;   t0_each: (r 1, c 24) float32 = div(1, t3)
;   in1: (r 1, c 24) float32 = load in1[r.0 : +1, 0 : +24]
;   t0: (r 1, c 24) float32, out0 = scan of t0_each, in1 along c by mul(t0_right, t0_left), add(mul(t0_right, out0_left), out0_right)
;   store out0[r.0 : +1, 0 : +24] = out0

define void @scan_scan_8x24(ptr noalias %in0, ptr noalias %in1, ptr noalias %out0, ptr noalias %scratch, i64 %first, i64 %count) nounwind "prefer-vector-width"="128" {
entry:
  %t0.before = alloca <4 x float>
  %out0.before = alloca <4 x float>
  %t0.started = alloca i1
  %t0.lanes = alloca <4 x i32>
  br label %tile
tile:
  %tile.1 = phi i64 [0, %entry], [%.144, %c.end]
  %.1 = add i64 %first, %tile.1
  ; pass over c: in0, t, t2, t3, t0_each, in1, t0, out0
  %.2 = mul i64 %.1, 24
  %.3 = getelementptr inbounds float, ptr %in0, i64 %.2
  %.4 = mul i64 %.1, 24
  %.5 = getelementptr inbounds float, ptr %in1, i64 %.4
  store <4 x float> splat (float 0x0000000000000000), ptr %t0.before
  store <4 x float> splat (float 0x0000000000000000), ptr %out0.before
  store i1 false, ptr %t0.started
  store <4 x i32> <i32 0, i32 1, i32 2, i32 3>, ptr %t0.lanes
  %.6 = load volatile <4 x i32>, ptr %t0.lanes
  %.7 = mul i64 %.1, 24
  %.8 = getelementptr inbounds float, ptr %out0, i64 %.7
  br label %c
c:
  %c.1 = phi i64 [0, %tile], [%.142, %c]
  %.9 = getelementptr inbounds float, ptr %.3, i64 %c.1
  %.10 = load <4 x float>, ptr %.9, align 4
  %.11 = fneg <4 x float> %.10
  %.12 = fcmp olt <4 x float> splat (float 0x4056400000000000), %.11
  %.13 = select <4 x i1> %.12, <4 x float> splat (float 0x4056400000000000), <4 x float> %.11
  %.14 = fcmp ogt <4 x float> splat (float 0xC05A000000000000), %.13
  %.15 = select <4 x i1> %.14, <4 x float> splat (float 0xC05A000000000000), <4 x float> %.13
  %.16 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.15, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %.17 = fsub <4 x float> %.16, splat (float 0x4168000000000000)
  %.18 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.17, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %.15)
  %.19 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.17, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %.18)
  %.20 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56A4D600000000), <4 x float> %.19, <4 x float> splat (float 0x3F812398E0000000))
  %.21 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.20, <4 x float> %.19, <4 x float> splat (float 0x3FA5558B00000000))
  %.22 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.21, <4 x float> %.19, <4 x float> splat (float 0x3FC5554920000000))
  %.23 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.22, <4 x float> %.19, <4 x float> splat (float 0x3FDFFFFFC0000000))
  %.24 = fmul <4 x float> %.19, %.19
  %.25 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.24, <4 x float> %.23, <4 x float> %.19)
  %.26 = fadd <4 x float> %.25, splat (float 0x3FF0000000000000)
  %.27 = bitcast <4 x float> %.16 to <4 x i32>
  %.28 = sub <4 x i32> %.27, splat (i32 1262485504)
  %.29 = ashr <4 x i32> %.28, splat (i32 1)
  %.30 = sub <4 x i32> %.28, %.29
  %.31 = add <4 x i32> %.29, splat (i32 127)
  %.32 = shl <4 x i32> %.31, splat (i32 23)
  %.33 = bitcast <4 x i32> %.32 to <4 x float>
  %.34 = fmul <4 x float> %.26, %.33
  %.35 = add <4 x i32> %.30, splat (i32 127)
  %.36 = shl <4 x i32> %.35, splat (i32 23)
  %.37 = bitcast <4 x i32> %.36 to <4 x float>
  %.38 = fmul <4 x float> %.34, %.37
  %.39 = fadd contract <4 x float> %.38, splat (float 0x3FF0000000000000)
  %.40 = fdiv <4 x float> splat (float 0x3FF0000000000000), %.39
  %.41 = getelementptr inbounds float, ptr %.5, i64 %c.1
  %.42 = load <4 x float>, ptr %.41, align 4
  %.43 = icmp sge <4 x i32> %.6, splat (i32 1)
  %.44 = shufflevector <4 x float> %.40, <4 x float> %.40, <4 x i32> <i32 0, i32 0, i32 1, i32 2>
  %.45 = shufflevector <4 x float> %.42, <4 x float> %.42, <4 x i32> <i32 0, i32 0, i32 1, i32 2>
  %.46 = fmul contract <4 x float> %.40, %.44
  %.47 = fmul contract <4 x float> %.40, %.45
  %.48 = fadd contract <4 x float> %.47, %.42
  %.49 = select <4 x i1> %.43, <4 x float> %.46, <4 x float> %.40
  %.50 = select <4 x i1> %.43, <4 x float> %.48, <4 x float> %.42
  %.51 = icmp sge <4 x i32> %.6, splat (i32 2)
  %.52 = shufflevector <4 x float> %.49, <4 x float> %.49, <4 x i32> <i32 0, i32 0, i32 0, i32 1>
  %.53 = shufflevector <4 x float> %.50, <4 x float> %.50, <4 x i32> <i32 0, i32 0, i32 0, i32 1>
  %.54 = fmul contract <4 x float> %.49, %.52
  %.55 = fmul contract <4 x float> %.49, %.53
  %.56 = fadd contract <4 x float> %.55, %.50
  %.57 = select <4 x i1> %.51, <4 x float> %.54, <4 x float> %.49
  %.58 = select <4 x i1> %.51, <4 x float> %.56, <4 x float> %.50
  %.59 = shufflevector <4 x float> %.57, <4 x float> %.57, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %.60 = shufflevector <4 x float> %.58, <4 x float> %.58, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %.61 = load <4 x float>, ptr %t0.before
  %.62 = load <4 x float>, ptr %out0.before
  %.63 = load i1, ptr %t0.started
  %.64 = fmul contract <4 x float> %.57, %.61
  %.65 = fmul contract <4 x float> %.57, %.62
  %.66 = fadd contract <4 x float> %.65, %.58
  %.67 = fmul contract <4 x float> %.59, %.61
  %.68 = fmul contract <4 x float> %.59, %.62
  %.69 = fadd contract <4 x float> %.68, %.60
  %.70 = select i1 %.63, <4 x float> %.64, <4 x float> %.57
  %.71 = select i1 %.63, <4 x float> %.67, <4 x float> %.59
  store <4 x float> %.71, ptr %t0.before
  %.72 = select i1 %.63, <4 x float> %.66, <4 x float> %.58
  %.73 = select i1 %.63, <4 x float> %.69, <4 x float> %.60
  store <4 x float> %.73, ptr %out0.before
  store i1 true, ptr %t0.started
  %.74 = getelementptr inbounds float, ptr %.8, i64 %c.1
  store <4 x float> %.72, ptr %.74, align 4
  %.75 = add i64 %c.1, 4
  %.76 = getelementptr inbounds float, ptr %.3, i64 %.75
  %.77 = load <4 x float>, ptr %.76, align 4
  %.78 = fneg <4 x float> %.77
  %.79 = fcmp olt <4 x float> splat (float 0x4056400000000000), %.78
  %.80 = select <4 x i1> %.79, <4 x float> splat (float 0x4056400000000000), <4 x float> %.78
  %.81 = fcmp ogt <4 x float> splat (float 0xC05A000000000000), %.80
  %.82 = select <4 x i1> %.81, <4 x float> splat (float 0xC05A000000000000), <4 x float> %.80
  %.83 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.82, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %.84 = fsub <4 x float> %.83, splat (float 0x4168000000000000)
  %.85 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.84, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %.82)
  %.86 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.84, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %.85)
  %.87 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56A4D600000000), <4 x float> %.86, <4 x float> splat (float 0x3F812398E0000000))
  %.88 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.87, <4 x float> %.86, <4 x float> splat (float 0x3FA5558B00000000))
  %.89 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.88, <4 x float> %.86, <4 x float> splat (float 0x3FC5554920000000))
  %.90 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.89, <4 x float> %.86, <4 x float> splat (float 0x3FDFFFFFC0000000))
  %.91 = fmul <4 x float> %.86, %.86
  %.92 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.91, <4 x float> %.90, <4 x float> %.86)
  %.93 = fadd <4 x float> %.92, splat (float 0x3FF0000000000000)
  %.94 = bitcast <4 x float> %.83 to <4 x i32>
  %.95 = sub <4 x i32> %.94, splat (i32 1262485504)
  %.96 = ashr <4 x i32> %.95, splat (i32 1)
  %.97 = sub <4 x i32> %.95, %.96
  %.98 = add <4 x i32> %.96, splat (i32 127)
  %.99 = shl <4 x i32> %.98, splat (i32 23)
  %.100 = bitcast <4 x i32> %.99 to <4 x float>
  %.101 = fmul <4 x float> %.93, %.100
  %.102 = add <4 x i32> %.97, splat (i32 127)
  %.103 = shl <4 x i32> %.102, splat (i32 23)
  %.104 = bitcast <4 x i32> %.103 to <4 x float>
  %.105 = fmul <4 x float> %.101, %.104
  %.106 = fadd contract <4 x float> %.105, splat (float 0x3FF0000000000000)
  %.107 = fdiv <4 x float> splat (float 0x3FF0000000000000), %.106
  %.108 = getelementptr inbounds float, ptr %.5, i64 %.75
  %.109 = load <4 x float>, ptr %.108, align 4
  %.110 = icmp sge <4 x i32> %.6, splat (i32 1)
  %.111 = shufflevector <4 x float> %.107, <4 x float> %.107, <4 x i32> <i32 0, i32 0, i32 1, i32 2>
  %.112 = shufflevector <4 x float> %.109, <4 x float> %.109, <4 x i32> <i32 0, i32 0, i32 1, i32 2>
  %.113 = fmul contract <4 x float> %.107, %.111
  %.114 = fmul contract <4 x float> %.107, %.112
  %.115 = fadd contract <4 x float> %.114, %.109
  %.116 = select <4 x i1> %.110, <4 x float> %.113, <4 x float> %.107
  %.117 = select <4 x i1> %.110, <4 x float> %.115, <4 x float> %.109
  %.118 = icmp sge <4 x i32> %.6, splat (i32 2)
  %.119 = shufflevector <4 x float> %.116, <4 x float> %.116, <4 x i32> <i32 0, i32 0, i32 0, i32 1>
  %.120 = shufflevector <4 x float> %.117, <4 x float> %.117, <4 x i32> <i32 0, i32 0, i32 0, i32 1>
  %.121 = fmul contract <4 x float> %.116, %.119
  %.122 = fmul contract <4 x float> %.116, %.120
  %.123 = fadd contract <4 x float> %.122, %.117
  %.124 = select <4 x i1> %.118, <4 x float> %.121, <4 x float> %.116
  %.125 = select <4 x i1> %.118, <4 x float> %.123, <4 x float> %.117
  %.126 = shufflevector <4 x float> %.124, <4 x float> %.124, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %.127 = shufflevector <4 x float> %.125, <4 x float> %.125, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %.128 = load <4 x float>, ptr %t0.before
  %.129 = load <4 x float>, ptr %out0.before
  %.130 = load i1, ptr %t0.started
  %.131 = fmul contract <4 x float> %.124, %.128
  %.132 = fmul contract <4 x float> %.124, %.129
  %.133 = fadd contract <4 x float> %.132, %.125
  %.134 = fmul contract <4 x float> %.126, %.128
  %.135 = fmul contract <4 x float> %.126, %.129
  %.136 = fadd contract <4 x float> %.135, %.127
  %.137 = select i1 %.130, <4 x float> %.131, <4 x float> %.124
  %.138 = select i1 %.130, <4 x float> %.134, <4 x float> %.126
  store <4 x float> %.138, ptr %t0.before
  %.139 = select i1 %.130, <4 x float> %.133, <4 x float> %.125
  %.140 = select i1 %.130, <4 x float> %.136, <4 x float> %.127
  store <4 x float> %.140, ptr %out0.before
  store i1 true, ptr %t0.started
  %.141 = getelementptr inbounds float, ptr %.8, i64 %.75
  store <4 x float> %.139, ptr %.141, align 4
  %.142 = add i64 %c.1, 8
  %.143 = icmp slt i64 %.142, 24
  br i1 %.143, label %c, label %c.end
c.end:
  %.144 = add i64 %tile.1, 1
  %.145 = icmp slt i64 %.144, %count
  br i1 %.145, label %tile, label %tile.end
tile.end:
  ret void
}

@scan_scan_8x24_scratch_bytes = constant i64 0

declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
