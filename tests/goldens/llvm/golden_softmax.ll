; row_whole rows=16x1 vectors=2 prefetch=0 streaming=False
;
; kernel softmax: grid r.0 in 16  [lanes 8, vectors 2]
;   x: (r 1, c 100) float32 = load x[r.0 : +1, 0 : +100]
;   top: (r 1) float32 = max of x over c
;   t: (r 1, c 100) float32 = sub(x, top)
;   total_body: (r 1, c 100) float32 = exp(t)
;   total: (r 1) float32 = sum of total_body over c
;   result: (r 1, c 100) float32 = div(total_body, total)
;   store out[r.0 : +1, 0 : +100] = result

define void @softmax(ptr noalias %x, ptr noalias %out, ptr noalias %scratch, i64 %first, i64 %count) nounwind "prefer-vector-width"="256" {
entry:
  %top.0 = alloca <8 x float>
  %top.1 = alloca <8 x float>
  %top = alloca float
  %total.0 = alloca <8 x float>
  %total.1 = alloca <8 x float>
  %total = alloca float
  br label %tile
tile:
  %tile.1 = phi i64 [0, %entry], [%.193, %c.end.2]
  %.1 = add i64 %first, %tile.1
  ; pass over c: x, top
  %.2 = mul i64 %.1, 100
  %.3 = getelementptr inbounds float, ptr %x, i64 %.2
  store <8 x float> splat (float 0xFFF0000000000000), ptr %top.0
  store <8 x float> splat (float 0xFFF0000000000000), ptr %top.1
  br label %c
c:
  %c.1 = phi i64 [0, %tile], [%.15, %c]
  %.4 = getelementptr inbounds float, ptr %.3, i64 %c.1
  %.5 = load <8 x float>, ptr %.4, align 4
  %.6 = load <8 x float>, ptr %top.0
  %.7 = fcmp ugt <8 x float> %.5, %.6
  %.8 = select <8 x i1> %.7, <8 x float> %.5, <8 x float> %.6
  store <8 x float> %.8, ptr %top.0
  %.9 = add i64 %c.1, 8
  %.10 = getelementptr inbounds float, ptr %.3, i64 %.9
  %.11 = load <8 x float>, ptr %.10, align 4
  %.12 = load <8 x float>, ptr %top.1
  %.13 = fcmp ugt <8 x float> %.11, %.12
  %.14 = select <8 x i1> %.13, <8 x float> %.11, <8 x float> %.12
  store <8 x float> %.14, ptr %top.1
  %.15 = add i64 %c.1, 16
  %.16 = icmp slt i64 %.15, 96
  br i1 %.16, label %c, label %c.end
c.end:
  %.17 = trunc i64 4 to i32
  %.18 = insertelement <8 x i32> poison, i32 %.17, i32 0
  %.19 = shufflevector <8 x i32> %.18, <8 x i32> poison, <8 x i32> zeroinitializer
  %.20 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.19
  %.21 = getelementptr inbounds float, ptr %.3, i64 96
  %.22 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %.21, i32 4, <8 x i1> %.20, <8 x float> zeroinitializer)
  %.23 = load <8 x float>, ptr %top.0
  %.24 = fcmp ugt <8 x float> %.22, %.23
  %.25 = select <8 x i1> %.24, <8 x float> %.22, <8 x float> %.23
  %.26 = select <8 x i1> %.20, <8 x float> %.25, <8 x float> %.23
  store <8 x float> %.26, ptr %top.0
  %.27 = load <8 x float>, ptr %top.0
  %.28 = load <8 x float>, ptr %top.1
  %.29 = fcmp ugt <8 x float> %.27, %.28
  %.30 = select <8 x i1> %.29, <8 x float> %.27, <8 x float> %.28
  %.31 = shufflevector <8 x float> %.30, <8 x float> %.30, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %.32 = shufflevector <8 x float> %.30, <8 x float> %.30, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %.33 = fcmp ugt <4 x float> %.31, %.32
  %.34 = select <4 x i1> %.33, <4 x float> %.31, <4 x float> %.32
  %.35 = shufflevector <4 x float> %.34, <4 x float> %.34, <2 x i32> <i32 0, i32 1>
  %.36 = shufflevector <4 x float> %.34, <4 x float> %.34, <2 x i32> <i32 2, i32 3>
  %.37 = fcmp ugt <2 x float> %.35, %.36
  %.38 = select <2 x i1> %.37, <2 x float> %.35, <2 x float> %.36
  %.39 = shufflevector <2 x float> %.38, <2 x float> %.38, <1 x i32> <i32 0>
  %.40 = shufflevector <2 x float> %.38, <2 x float> %.38, <1 x i32> <i32 1>
  %.41 = fcmp ugt <1 x float> %.39, %.40
  %.42 = select <1 x i1> %.41, <1 x float> %.39, <1 x float> %.40
  %.43 = extractelement <1 x float> %.42, i32 0
  store float %.43, ptr %top
  ; pass over c: x, t, total_body, total
  %.44 = mul i64 %.1, 100
  %.45 = getelementptr inbounds float, ptr %x, i64 %.44
  %.46 = load float, ptr %top
  %.47 = insertelement <8 x float> poison, float %.46, i32 0
  %.48 = shufflevector <8 x float> %.47, <8 x float> poison, <8 x i32> zeroinitializer
  store <8 x float> splat (float 0x0000000000000000), ptr %total.0
  store <8 x float> splat (float 0x0000000000000000), ptr %total.1
  br label %c.2
c.2:
  %c.3 = phi i64 [0, %c.end], [%.116, %c.2]
  %.49 = getelementptr inbounds float, ptr %.45, i64 %c.3
  %.50 = load <8 x float>, ptr %.49, align 4
  %.51 = fsub contract <8 x float> %.50, %.48
  %.52 = fcmp olt <8 x float> splat (float 0x4056400000000000), %.51
  %.53 = select <8 x i1> %.52, <8 x float> splat (float 0x4056400000000000), <8 x float> %.51
  %.54 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %.53
  %.55 = select <8 x i1> %.54, <8 x float> splat (float 0xC05A000000000000), <8 x float> %.53
  %.56 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.55, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %.57 = fsub <8 x float> %.56, splat (float 0x4168000000000000)
  %.58 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.57, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %.55)
  %.59 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.57, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %.58)
  %.60 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %.59, <8 x float> splat (float 0x3F812398E0000000))
  %.61 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.60, <8 x float> %.59, <8 x float> splat (float 0x3FA5558B00000000))
  %.62 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.61, <8 x float> %.59, <8 x float> splat (float 0x3FC5554920000000))
  %.63 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.62, <8 x float> %.59, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %.64 = fmul <8 x float> %.59, %.59
  %.65 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.64, <8 x float> %.63, <8 x float> %.59)
  %.66 = fadd <8 x float> %.65, splat (float 0x3FF0000000000000)
  %.67 = bitcast <8 x float> %.56 to <8 x i32>
  %.68 = sub <8 x i32> %.67, splat (i32 1262485504)
  %.69 = ashr <8 x i32> %.68, splat (i32 1)
  %.70 = sub <8 x i32> %.68, %.69
  %.71 = add <8 x i32> %.69, splat (i32 127)
  %.72 = shl <8 x i32> %.71, splat (i32 23)
  %.73 = bitcast <8 x i32> %.72 to <8 x float>
  %.74 = fmul <8 x float> %.66, %.73
  %.75 = add <8 x i32> %.70, splat (i32 127)
  %.76 = shl <8 x i32> %.75, splat (i32 23)
  %.77 = bitcast <8 x i32> %.76 to <8 x float>
  %.78 = fmul <8 x float> %.74, %.77
  %.79 = load <8 x float>, ptr %total.0
  %.80 = fadd contract <8 x float> %.78, %.79
  store <8 x float> %.80, ptr %total.0
  %.81 = getelementptr inbounds float, ptr %scratch, i64 %c.3
  store <8 x float> %.78, ptr %.81, align 4
  %.82 = add i64 %c.3, 8
  %.83 = getelementptr inbounds float, ptr %.45, i64 %.82
  %.84 = load <8 x float>, ptr %.83, align 4
  %.85 = fsub contract <8 x float> %.84, %.48
  %.86 = fcmp olt <8 x float> splat (float 0x4056400000000000), %.85
  %.87 = select <8 x i1> %.86, <8 x float> splat (float 0x4056400000000000), <8 x float> %.85
  %.88 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %.87
  %.89 = select <8 x i1> %.88, <8 x float> splat (float 0xC05A000000000000), <8 x float> %.87
  %.90 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.89, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %.91 = fsub <8 x float> %.90, splat (float 0x4168000000000000)
  %.92 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.91, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %.89)
  %.93 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.91, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %.92)
  %.94 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %.93, <8 x float> splat (float 0x3F812398E0000000))
  %.95 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.94, <8 x float> %.93, <8 x float> splat (float 0x3FA5558B00000000))
  %.96 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.95, <8 x float> %.93, <8 x float> splat (float 0x3FC5554920000000))
  %.97 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.96, <8 x float> %.93, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %.98 = fmul <8 x float> %.93, %.93
  %.99 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.98, <8 x float> %.97, <8 x float> %.93)
  %.100 = fadd <8 x float> %.99, splat (float 0x3FF0000000000000)
  %.101 = bitcast <8 x float> %.90 to <8 x i32>
  %.102 = sub <8 x i32> %.101, splat (i32 1262485504)
  %.103 = ashr <8 x i32> %.102, splat (i32 1)
  %.104 = sub <8 x i32> %.102, %.103
  %.105 = add <8 x i32> %.103, splat (i32 127)
  %.106 = shl <8 x i32> %.105, splat (i32 23)
  %.107 = bitcast <8 x i32> %.106 to <8 x float>
  %.108 = fmul <8 x float> %.100, %.107
  %.109 = add <8 x i32> %.104, splat (i32 127)
  %.110 = shl <8 x i32> %.109, splat (i32 23)
  %.111 = bitcast <8 x i32> %.110 to <8 x float>
  %.112 = fmul <8 x float> %.108, %.111
  %.113 = load <8 x float>, ptr %total.1
  %.114 = fadd contract <8 x float> %.112, %.113
  store <8 x float> %.114, ptr %total.1
  %.115 = getelementptr inbounds float, ptr %scratch, i64 %.82
  store <8 x float> %.112, ptr %.115, align 4
  %.116 = add i64 %c.3, 16
  %.117 = icmp slt i64 %.116, 96
  br i1 %.117, label %c.2, label %c.end.1
c.end.1:
  %.118 = trunc i64 4 to i32
  %.119 = insertelement <8 x i32> poison, i32 %.118, i32 0
  %.120 = shufflevector <8 x i32> %.119, <8 x i32> poison, <8 x i32> zeroinitializer
  %.121 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.120
  %.122 = getelementptr inbounds float, ptr %.45, i64 96
  %.123 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %.122, i32 4, <8 x i1> %.121, <8 x float> zeroinitializer)
  %.124 = fsub contract <8 x float> %.123, %.48
  %.125 = fcmp olt <8 x float> splat (float 0x4056400000000000), %.124
  %.126 = select <8 x i1> %.125, <8 x float> splat (float 0x4056400000000000), <8 x float> %.124
  %.127 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %.126
  %.128 = select <8 x i1> %.127, <8 x float> splat (float 0xC05A000000000000), <8 x float> %.126
  %.129 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.128, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %.130 = fsub <8 x float> %.129, splat (float 0x4168000000000000)
  %.131 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.130, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %.128)
  %.132 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.130, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %.131)
  %.133 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %.132, <8 x float> splat (float 0x3F812398E0000000))
  %.134 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.133, <8 x float> %.132, <8 x float> splat (float 0x3FA5558B00000000))
  %.135 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.134, <8 x float> %.132, <8 x float> splat (float 0x3FC5554920000000))
  %.136 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.135, <8 x float> %.132, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %.137 = fmul <8 x float> %.132, %.132
  %.138 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.137, <8 x float> %.136, <8 x float> %.132)
  %.139 = fadd <8 x float> %.138, splat (float 0x3FF0000000000000)
  %.140 = bitcast <8 x float> %.129 to <8 x i32>
  %.141 = sub <8 x i32> %.140, splat (i32 1262485504)
  %.142 = ashr <8 x i32> %.141, splat (i32 1)
  %.143 = sub <8 x i32> %.141, %.142
  %.144 = add <8 x i32> %.142, splat (i32 127)
  %.145 = shl <8 x i32> %.144, splat (i32 23)
  %.146 = bitcast <8 x i32> %.145 to <8 x float>
  %.147 = fmul <8 x float> %.139, %.146
  %.148 = add <8 x i32> %.143, splat (i32 127)
  %.149 = shl <8 x i32> %.148, splat (i32 23)
  %.150 = bitcast <8 x i32> %.149 to <8 x float>
  %.151 = fmul <8 x float> %.147, %.150
  %.152 = load <8 x float>, ptr %total.0
  %.153 = fadd contract <8 x float> %.151, %.152
  %.154 = select <8 x i1> %.121, <8 x float> %.153, <8 x float> %.152
  store <8 x float> %.154, ptr %total.0
  %.155 = getelementptr inbounds float, ptr %scratch, i64 96
  store <8 x float> %.151, ptr %.155, align 4
  %.156 = load <8 x float>, ptr %total.0
  %.157 = load <8 x float>, ptr %total.1
  %.158 = fadd contract <8 x float> %.156, %.157
  %.159 = shufflevector <8 x float> %.158, <8 x float> %.158, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %.160 = shufflevector <8 x float> %.158, <8 x float> %.158, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %.161 = fadd contract <4 x float> %.159, %.160
  %.162 = shufflevector <4 x float> %.161, <4 x float> %.161, <2 x i32> <i32 0, i32 1>
  %.163 = shufflevector <4 x float> %.161, <4 x float> %.161, <2 x i32> <i32 2, i32 3>
  %.164 = fadd contract <2 x float> %.162, %.163
  %.165 = shufflevector <2 x float> %.164, <2 x float> %.164, <1 x i32> <i32 0>
  %.166 = shufflevector <2 x float> %.164, <2 x float> %.164, <1 x i32> <i32 1>
  %.167 = fadd contract <1 x float> %.165, %.166
  %.168 = extractelement <1 x float> %.167, i32 0
  store float %.168, ptr %total
  ; pass over c: result
  %.169 = load float, ptr %total
  %.170 = insertelement <8 x float> poison, float %.169, i32 0
  %.171 = shufflevector <8 x float> %.170, <8 x float> poison, <8 x i32> zeroinitializer
  %.172 = mul i64 %.1, 100
  %.173 = getelementptr inbounds float, ptr %out, i64 %.172
  br label %c.4
c.4:
  %c.5 = phi i64 [0, %c.end.1], [%.183, %c.4]
  %.174 = getelementptr inbounds float, ptr %scratch, i64 %c.5
  %.175 = load <8 x float>, ptr %.174, align 4
  %.176 = fdiv <8 x float> %.175, %.171
  %.177 = getelementptr inbounds float, ptr %.173, i64 %c.5
  store <8 x float> %.176, ptr %.177, align 4
  %.178 = add i64 %c.5, 8
  %.179 = getelementptr inbounds float, ptr %scratch, i64 %.178
  %.180 = load <8 x float>, ptr %.179, align 4
  %.181 = fdiv <8 x float> %.180, %.171
  %.182 = getelementptr inbounds float, ptr %.173, i64 %.178
  store <8 x float> %.181, ptr %.182, align 4
  %.183 = add i64 %c.5, 16
  %.184 = icmp slt i64 %.183, 96
  br i1 %.184, label %c.4, label %c.end.2
c.end.2:
  %.185 = trunc i64 4 to i32
  %.186 = insertelement <8 x i32> poison, i32 %.185, i32 0
  %.187 = shufflevector <8 x i32> %.186, <8 x i32> poison, <8 x i32> zeroinitializer
  %.188 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.187
  %.189 = getelementptr inbounds float, ptr %scratch, i64 96
  %.190 = load <8 x float>, ptr %.189, align 4
  %.191 = fdiv <8 x float> %.190, %.171
  %.192 = getelementptr inbounds float, ptr %.173, i64 96
  call void @llvm.masked.store.v8f32.p0(<8 x float> %.191, ptr %.192, i32 4, <8 x i1> %.188)
  %.193 = add i64 %tile.1, 1
  %.194 = icmp slt i64 %.193, %count
  br i1 %.194, label %tile, label %tile.end
tile.end:
  ret void
}

@softmax_scratch_bytes = constant i64 4416

declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, i32, <8 x i1>, <8 x float>)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, i32, <8 x i1>)
