; row_whole rows=8x1 vectors=2 prefetch=0 streaming=False
;
; kernel recurrence: grid r.0 in 8  [lanes 4, vectors 2]
;   u: (r 1, c 24) float32 = load u[r.0 : +1, 0 : +24]
;   t: (r 1, c 24) float32 = neg(u)
;   t2: (r 1, c 24) float32 = exp(t)
;   t3: (r 1, c 24) float32 = add(t2, 1)
;   a_each: (r 1, c 24) float32 = div(1, t3)
;   x: (r 1, c 24) float32 = load x[r.0 : +1, 0 : +24]
;   a: (r 1, c 24) float32, h = scan of a_each, x along c by mul(a_left, a_right), add(mul(h_left, a_right), h_right)
;   store h[r.0 : +1, 0 : +24] = h

define void @recurrence(ptr noalias %u, ptr noalias %x, ptr noalias %h, ptr noalias %scratch, i64 %first, i64 %count) nounwind "prefer-vector-width"="128" {
entry:
  %a.before = alloca <4 x float>
  %h.before = alloca <4 x float>
  %a.started = alloca i1
  br label %tile
tile:
  %tile.1 = phi i64 [0, %entry], [%.139, %c.end]
  %.1 = add i64 %first, %tile.1
  ; pass over c: u, t, t2, t3, a_each, x, a, h
  %.2 = mul i64 %.1, 24
  %.3 = getelementptr inbounds float, ptr %u, i64 %.2
  %.4 = mul i64 %.1, 24
  %.5 = getelementptr inbounds float, ptr %x, i64 %.4
  store <4 x float> splat (float 0x0000000000000000), ptr %a.before
  store <4 x float> splat (float 0x0000000000000000), ptr %h.before
  store i1 false, ptr %a.started
  %.6 = mul i64 %.1, 24
  %.7 = getelementptr inbounds float, ptr %h, i64 %.6
  br label %c
c:
  %c.1 = phi i64 [0, %tile], [%.137, %c]
  %.8 = getelementptr inbounds float, ptr %.3, i64 %c.1
  %.9 = load <4 x float>, ptr %.8, align 4
  %.10 = fneg <4 x float> %.9
  %.11 = fcmp olt <4 x float> splat (float 0x4056400000000000), %.10
  %.12 = select <4 x i1> %.11, <4 x float> splat (float 0x4056400000000000), <4 x float> %.10
  %.13 = fcmp ogt <4 x float> splat (float 0xC05A000000000000), %.12
  %.14 = select <4 x i1> %.13, <4 x float> splat (float 0xC05A000000000000), <4 x float> %.12
  %.15 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.14, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %.16 = fsub <4 x float> %.15, splat (float 0x4168000000000000)
  %.17 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.16, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %.14)
  %.18 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.16, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %.17)
  %.19 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56A4D600000000), <4 x float> %.18, <4 x float> splat (float 0x3F812398E0000000))
  %.20 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.19, <4 x float> %.18, <4 x float> splat (float 0x3FA5558B00000000))
  %.21 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.20, <4 x float> %.18, <4 x float> splat (float 0x3FC5554920000000))
  %.22 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.21, <4 x float> %.18, <4 x float> splat (float 0x3FDFFFFFC0000000))
  %.23 = fmul <4 x float> %.18, %.18
  %.24 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.23, <4 x float> %.22, <4 x float> %.18)
  %.25 = fadd <4 x float> %.24, splat (float 0x3FF0000000000000)
  %.26 = bitcast <4 x float> %.15 to <4 x i32>
  %.27 = sub <4 x i32> %.26, splat (i32 1262485504)
  %.28 = ashr <4 x i32> %.27, splat (i32 1)
  %.29 = sub <4 x i32> %.27, %.28
  %.30 = add <4 x i32> %.28, splat (i32 127)
  %.31 = shl <4 x i32> %.30, splat (i32 23)
  %.32 = bitcast <4 x i32> %.31 to <4 x float>
  %.33 = fmul <4 x float> %.25, %.32
  %.34 = add <4 x i32> %.29, splat (i32 127)
  %.35 = shl <4 x i32> %.34, splat (i32 23)
  %.36 = bitcast <4 x i32> %.35 to <4 x float>
  %.37 = fmul <4 x float> %.33, %.36
  %.38 = fadd contract <4 x float> %.37, splat (float 0x3FF0000000000000)
  %.39 = fdiv <4 x float> splat (float 0x3FF0000000000000), %.38
  %.40 = getelementptr inbounds float, ptr %.5, i64 %c.1
  %.41 = load <4 x float>, ptr %.40, align 4
  %.42 = shufflevector <4 x float> %.39, <4 x float> %.39, <4 x i32> <i32 0, i32 0, i32 1, i32 2>
  %.43 = shufflevector <4 x float> %.41, <4 x float> %.41, <4 x i32> <i32 0, i32 0, i32 1, i32 2>
  %.44 = fmul contract <4 x float> %.42, %.39
  %.45 = fmul contract <4 x float> %.43, %.39
  %.46 = fadd contract <4 x float> %.45, %.41
  %.47 = select <4 x i1> <i1 0, i1 1, i1 1, i1 1>, <4 x float> %.44, <4 x float> %.39
  %.48 = select <4 x i1> <i1 0, i1 1, i1 1, i1 1>, <4 x float> %.46, <4 x float> %.41
  %.49 = shufflevector <4 x float> %.47, <4 x float> %.47, <4 x i32> <i32 0, i32 0, i32 0, i32 1>
  %.50 = shufflevector <4 x float> %.48, <4 x float> %.48, <4 x i32> <i32 0, i32 0, i32 0, i32 1>
  %.51 = fmul contract <4 x float> %.49, %.47
  %.52 = fmul contract <4 x float> %.50, %.47
  %.53 = fadd contract <4 x float> %.52, %.48
  %.54 = select <4 x i1> <i1 0, i1 0, i1 1, i1 1>, <4 x float> %.51, <4 x float> %.47
  %.55 = select <4 x i1> <i1 0, i1 0, i1 1, i1 1>, <4 x float> %.53, <4 x float> %.48
  %.56 = shufflevector <4 x float> %.54, <4 x float> %.54, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %.57 = shufflevector <4 x float> %.55, <4 x float> %.55, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %.58 = load <4 x float>, ptr %a.before
  %.59 = load <4 x float>, ptr %h.before
  %.60 = load i1, ptr %a.started
  %.61 = fmul contract <4 x float> %.58, %.54
  %.62 = fmul contract <4 x float> %.59, %.54
  %.63 = fadd contract <4 x float> %.62, %.55
  %.64 = fmul contract <4 x float> %.58, %.56
  %.65 = fmul contract <4 x float> %.59, %.56
  %.66 = fadd contract <4 x float> %.65, %.57
  %.67 = select i1 %.60, <4 x float> %.61, <4 x float> %.54
  %.68 = select i1 %.60, <4 x float> %.64, <4 x float> %.56
  store <4 x float> %.68, ptr %a.before
  %.69 = select i1 %.60, <4 x float> %.63, <4 x float> %.55
  %.70 = select i1 %.60, <4 x float> %.66, <4 x float> %.57
  store <4 x float> %.70, ptr %h.before
  store i1 true, ptr %a.started
  %.71 = getelementptr inbounds float, ptr %.7, i64 %c.1
  store <4 x float> %.69, ptr %.71, align 4
  %.72 = add i64 %c.1, 4
  %.73 = getelementptr inbounds float, ptr %.3, i64 %.72
  %.74 = load <4 x float>, ptr %.73, align 4
  %.75 = fneg <4 x float> %.74
  %.76 = fcmp olt <4 x float> splat (float 0x4056400000000000), %.75
  %.77 = select <4 x i1> %.76, <4 x float> splat (float 0x4056400000000000), <4 x float> %.75
  %.78 = fcmp ogt <4 x float> splat (float 0xC05A000000000000), %.77
  %.79 = select <4 x i1> %.78, <4 x float> splat (float 0xC05A000000000000), <4 x float> %.77
  %.80 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.79, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %.81 = fsub <4 x float> %.80, splat (float 0x4168000000000000)
  %.82 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.81, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %.79)
  %.83 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.81, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %.82)
  %.84 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56A4D600000000), <4 x float> %.83, <4 x float> splat (float 0x3F812398E0000000))
  %.85 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.84, <4 x float> %.83, <4 x float> splat (float 0x3FA5558B00000000))
  %.86 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.85, <4 x float> %.83, <4 x float> splat (float 0x3FC5554920000000))
  %.87 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.86, <4 x float> %.83, <4 x float> splat (float 0x3FDFFFFFC0000000))
  %.88 = fmul <4 x float> %.83, %.83
  %.89 = call <4 x float> @llvm.fma.v4f32(<4 x float> %.88, <4 x float> %.87, <4 x float> %.83)
  %.90 = fadd <4 x float> %.89, splat (float 0x3FF0000000000000)
  %.91 = bitcast <4 x float> %.80 to <4 x i32>
  %.92 = sub <4 x i32> %.91, splat (i32 1262485504)
  %.93 = ashr <4 x i32> %.92, splat (i32 1)
  %.94 = sub <4 x i32> %.92, %.93
  %.95 = add <4 x i32> %.93, splat (i32 127)
  %.96 = shl <4 x i32> %.95, splat (i32 23)
  %.97 = bitcast <4 x i32> %.96 to <4 x float>
  %.98 = fmul <4 x float> %.90, %.97
  %.99 = add <4 x i32> %.94, splat (i32 127)
  %.100 = shl <4 x i32> %.99, splat (i32 23)
  %.101 = bitcast <4 x i32> %.100 to <4 x float>
  %.102 = fmul <4 x float> %.98, %.101
  %.103 = fadd contract <4 x float> %.102, splat (float 0x3FF0000000000000)
  %.104 = fdiv <4 x float> splat (float 0x3FF0000000000000), %.103
  %.105 = getelementptr inbounds float, ptr %.5, i64 %.72
  %.106 = load <4 x float>, ptr %.105, align 4
  %.107 = shufflevector <4 x float> %.104, <4 x float> %.104, <4 x i32> <i32 0, i32 0, i32 1, i32 2>
  %.108 = shufflevector <4 x float> %.106, <4 x float> %.106, <4 x i32> <i32 0, i32 0, i32 1, i32 2>
  %.109 = fmul contract <4 x float> %.107, %.104
  %.110 = fmul contract <4 x float> %.108, %.104
  %.111 = fadd contract <4 x float> %.110, %.106
  %.112 = select <4 x i1> <i1 0, i1 1, i1 1, i1 1>, <4 x float> %.109, <4 x float> %.104
  %.113 = select <4 x i1> <i1 0, i1 1, i1 1, i1 1>, <4 x float> %.111, <4 x float> %.106
  %.114 = shufflevector <4 x float> %.112, <4 x float> %.112, <4 x i32> <i32 0, i32 0, i32 0, i32 1>
  %.115 = shufflevector <4 x float> %.113, <4 x float> %.113, <4 x i32> <i32 0, i32 0, i32 0, i32 1>
  %.116 = fmul contract <4 x float> %.114, %.112
  %.117 = fmul contract <4 x float> %.115, %.112
  %.118 = fadd contract <4 x float> %.117, %.113
  %.119 = select <4 x i1> <i1 0, i1 0, i1 1, i1 1>, <4 x float> %.116, <4 x float> %.112
  %.120 = select <4 x i1> <i1 0, i1 0, i1 1, i1 1>, <4 x float> %.118, <4 x float> %.113
  %.121 = shufflevector <4 x float> %.119, <4 x float> %.119, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %.122 = shufflevector <4 x float> %.120, <4 x float> %.120, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %.123 = load <4 x float>, ptr %a.before
  %.124 = load <4 x float>, ptr %h.before
  %.125 = load i1, ptr %a.started
  %.126 = fmul contract <4 x float> %.123, %.119
  %.127 = fmul contract <4 x float> %.124, %.119
  %.128 = fadd contract <4 x float> %.127, %.120
  %.129 = fmul contract <4 x float> %.123, %.121
  %.130 = fmul contract <4 x float> %.124, %.121
  %.131 = fadd contract <4 x float> %.130, %.122
  %.132 = select i1 %.125, <4 x float> %.126, <4 x float> %.119
  %.133 = select i1 %.125, <4 x float> %.129, <4 x float> %.121
  store <4 x float> %.133, ptr %a.before
  %.134 = select i1 %.125, <4 x float> %.128, <4 x float> %.120
  %.135 = select i1 %.125, <4 x float> %.131, <4 x float> %.122
  store <4 x float> %.135, ptr %h.before
  store i1 true, ptr %a.started
  %.136 = getelementptr inbounds float, ptr %.7, i64 %.72
  store <4 x float> %.134, ptr %.136, align 4
  %.137 = add i64 %c.1, 8
  %.138 = icmp slt i64 %.137, 24
  br i1 %.138, label %c, label %c.end
c.end:
  %.139 = add i64 %tile.1, 1
  %.140 = icmp slt i64 %.139, %count
  br i1 %.140, label %tile, label %tile.end
tile.end:
  ret void
}

@recurrence_scratch_bytes = constant i64 0

declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
