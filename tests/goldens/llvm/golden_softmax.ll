; reduction columns=100 split=1 rows=16x1 online=False vectors=2 prefetch=0 streaming=False
;
; in0: (16, 100) float32
; out0: (16, 100) float32
;
; kernel max_sum_16: grid r.0 in 16  [lanes 8, vectors 2]
;   in0: (r 1, c 100) float32 = load in0[r.0 : +1, 0 : +100]
;   t1: (r 1) float32 = max of in0 over c
;   t: (r 1, c 100) float32 = sub(in0, t1)
;   t0_body: (r 1, c 100) float32 = exp(t)
;   t0: (r 1) float32 = sum of t0_body over c
;   result: (r 1, c 100) float32 = div(t0_body, t0)
;   store out0[r.0 : +1, 0 : +100] = result

define void @max_sum_16(ptr noalias %in0, ptr noalias %out0, ptr noalias %scratch, i64 %first, i64 %count) nounwind "prefer-vector-width"="256" {
entry:
  %t1.0 = alloca <8 x float>
  %t1.1 = alloca <8 x float>
  %t1.nan = alloca <8 x float>
  %t1 = alloca float
  %t0.0 = alloca <8 x float>
  %t0.1 = alloca <8 x float>
  %t0 = alloca float
  br label %tile
tile:
  %tile.1 = phi i64 [0, %entry], [%.207, %c.end.2]
  %.1 = add i64 %first, %tile.1
  ; pass over c: in0, t1
  %.2 = mul i64 %.1, 100
  %.3 = getelementptr inbounds float, ptr %in0, i64 %.2
  store <8 x float> splat (float 0xFFF0000000000000), ptr %t1.0
  store <8 x float> splat (float 0xFFF0000000000000), ptr %t1.1
  store <8 x float> splat (float 0x0000000000000000), ptr %t1.nan
  br label %c
c:
  %c.1 = phi i64 [0, %tile], [%.21, %c]
  %.4 = getelementptr inbounds float, ptr %.3, i64 %c.1
  %.5 = load <8 x float>, ptr %.4, align 4
  %.6 = load <8 x float>, ptr %t1.0
  %.7 = fcmp ugt <8 x float> %.5, %.6
  %.8 = select <8 x i1> %.7, <8 x float> %.5, <8 x float> %.6
  store <8 x float> %.8, ptr %t1.0
  %.9 = load <8 x float>, ptr %t1.nan
  %.10 = fcmp uno <8 x float> %.5, %.5
  %.11 = select <8 x i1> %.10, <8 x float> %.5, <8 x float> %.9
  store <8 x float> %.11, ptr %t1.nan
  %.12 = add i64 %c.1, 8
  %.13 = getelementptr inbounds float, ptr %.3, i64 %.12
  %.14 = load <8 x float>, ptr %.13, align 4
  %.15 = load <8 x float>, ptr %t1.1
  %.16 = fcmp ugt <8 x float> %.14, %.15
  %.17 = select <8 x i1> %.16, <8 x float> %.14, <8 x float> %.15
  store <8 x float> %.17, ptr %t1.1
  %.18 = load <8 x float>, ptr %t1.nan
  %.19 = fcmp uno <8 x float> %.14, %.14
  %.20 = select <8 x i1> %.19, <8 x float> %.14, <8 x float> %.18
  store <8 x float> %.20, ptr %t1.nan
  %.21 = add i64 %c.1, 16
  %.22 = icmp slt i64 %.21, 96
  br i1 %.22, label %c, label %c.end
c.end:
  %.23 = trunc i64 4 to i32
  %.24 = insertelement <8 x i32> poison, i32 %.23, i32 0
  %.25 = shufflevector <8 x i32> %.24, <8 x i32> poison, <8 x i32> zeroinitializer
  %.26 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.25
  %.27 = getelementptr inbounds float, ptr %.3, i64 96
  %.28 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %.27, i32 4, <8 x i1> %.26, <8 x float> zeroinitializer)
  %.29 = load <8 x float>, ptr %t1.0
  %.30 = select <8 x i1> %.26, <8 x float> %.28, <8 x float> splat (float 0xFFF0000000000000)
  %.31 = fcmp ugt <8 x float> %.30, %.29
  %.32 = select <8 x i1> %.31, <8 x float> %.30, <8 x float> %.29
  store <8 x float> %.32, ptr %t1.0
  %.33 = load <8 x float>, ptr %t1.nan
  %.34 = fcmp uno <8 x float> %.30, %.30
  %.35 = select <8 x i1> %.34, <8 x float> %.30, <8 x float> %.33
  store <8 x float> %.35, ptr %t1.nan
  %.36 = load <8 x float>, ptr %t1.0
  %.37 = load <8 x float>, ptr %t1.1
  %.38 = fcmp ugt <8 x float> %.36, %.37
  %.39 = select <8 x i1> %.38, <8 x float> %.36, <8 x float> %.37
  %.40 = shufflevector <8 x float> %.39, <8 x float> %.39, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %.41 = shufflevector <8 x float> %.39, <8 x float> %.39, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %.42 = fcmp ugt <4 x float> %.40, %.41
  %.43 = select <4 x i1> %.42, <4 x float> %.40, <4 x float> %.41
  %.44 = shufflevector <4 x float> %.43, <4 x float> %.43, <2 x i32> <i32 0, i32 1>
  %.45 = shufflevector <4 x float> %.43, <4 x float> %.43, <2 x i32> <i32 2, i32 3>
  %.46 = fcmp ugt <2 x float> %.44, %.45
  %.47 = select <2 x i1> %.46, <2 x float> %.44, <2 x float> %.45
  %.48 = shufflevector <2 x float> %.47, <2 x float> %.47, <1 x i32> <i32 0>
  %.49 = shufflevector <2 x float> %.47, <2 x float> %.47, <1 x i32> <i32 1>
  %.50 = fcmp ugt <1 x float> %.48, %.49
  %.51 = select <1 x i1> %.50, <1 x float> %.48, <1 x float> %.49
  %.52 = extractelement <1 x float> %.51, i32 0
  %.53 = load <8 x float>, ptr %t1.nan
  %.54 = fcmp uno <8 x float> %.53, %.53
  %.55 = bitcast <8 x i1> %.54 to i8
  %.56 = icmp ne i8 %.55, 0
  %.57 = select i1 %.56, float 0x7FF8000000000000, float %.52
  store float %.57, ptr %t1
  ; pass over c: in0, t, t0_body, t0
  %.58 = mul i64 %.1, 100
  %.59 = getelementptr inbounds float, ptr %in0, i64 %.58
  %.60 = load float, ptr %t1
  %.61 = insertelement <8 x float> poison, float %.60, i32 0
  %.62 = shufflevector <8 x float> %.61, <8 x float> poison, <8 x i32> zeroinitializer
  store <8 x float> splat (float 0x0000000000000000), ptr %t0.0
  store <8 x float> splat (float 0x0000000000000000), ptr %t0.1
  br label %c.2
c.2:
  %c.3 = phi i64 [0, %c.end], [%.130, %c.2]
  %.63 = getelementptr inbounds float, ptr %.59, i64 %c.3
  %.64 = load <8 x float>, ptr %.63, align 4
  %.65 = fsub <8 x float> %.64, %.62
  %.66 = fcmp olt <8 x float> splat (float 0x4056400000000000), %.65
  %.67 = select <8 x i1> %.66, <8 x float> splat (float 0x4056400000000000), <8 x float> %.65
  %.68 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %.67
  %.69 = select <8 x i1> %.68, <8 x float> splat (float 0xC05A000000000000), <8 x float> %.67
  %.70 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.69, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %.71 = fsub <8 x float> %.70, splat (float 0x4168000000000000)
  %.72 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.71, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %.69)
  %.73 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.71, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %.72)
  %.74 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %.73, <8 x float> splat (float 0x3F812398E0000000))
  %.75 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.74, <8 x float> %.73, <8 x float> splat (float 0x3FA5558B00000000))
  %.76 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.75, <8 x float> %.73, <8 x float> splat (float 0x3FC5554920000000))
  %.77 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.76, <8 x float> %.73, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %.78 = fmul <8 x float> %.73, %.73
  %.79 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.78, <8 x float> %.77, <8 x float> %.73)
  %.80 = fadd <8 x float> %.79, splat (float 0x3FF0000000000000)
  %.81 = bitcast <8 x float> %.70 to <8 x i32>
  %.82 = sub <8 x i32> %.81, splat (i32 1262485504)
  %.83 = ashr <8 x i32> %.82, splat (i32 1)
  %.84 = sub <8 x i32> %.82, %.83
  %.85 = add <8 x i32> %.83, splat (i32 127)
  %.86 = shl <8 x i32> %.85, splat (i32 23)
  %.87 = bitcast <8 x i32> %.86 to <8 x float>
  %.88 = fmul <8 x float> %.80, %.87
  %.89 = add <8 x i32> %.84, splat (i32 127)
  %.90 = shl <8 x i32> %.89, splat (i32 23)
  %.91 = bitcast <8 x i32> %.90 to <8 x float>
  %.92 = fmul <8 x float> %.88, %.91
  %.93 = load <8 x float>, ptr %t0.0
  %.94 = fadd contract <8 x float> %.92, %.93
  store <8 x float> %.94, ptr %t0.0
  %.95 = getelementptr inbounds float, ptr %scratch, i64 %c.3
  store <8 x float> %.92, ptr %.95, align 4
  %.96 = add i64 %c.3, 8
  %.97 = getelementptr inbounds float, ptr %.59, i64 %.96
  %.98 = load <8 x float>, ptr %.97, align 4
  %.99 = fsub <8 x float> %.98, %.62
  %.100 = fcmp olt <8 x float> splat (float 0x4056400000000000), %.99
  %.101 = select <8 x i1> %.100, <8 x float> splat (float 0x4056400000000000), <8 x float> %.99
  %.102 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %.101
  %.103 = select <8 x i1> %.102, <8 x float> splat (float 0xC05A000000000000), <8 x float> %.101
  %.104 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.103, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %.105 = fsub <8 x float> %.104, splat (float 0x4168000000000000)
  %.106 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.105, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %.103)
  %.107 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.105, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %.106)
  %.108 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %.107, <8 x float> splat (float 0x3F812398E0000000))
  %.109 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.108, <8 x float> %.107, <8 x float> splat (float 0x3FA5558B00000000))
  %.110 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.109, <8 x float> %.107, <8 x float> splat (float 0x3FC5554920000000))
  %.111 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.110, <8 x float> %.107, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %.112 = fmul <8 x float> %.107, %.107
  %.113 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.112, <8 x float> %.111, <8 x float> %.107)
  %.114 = fadd <8 x float> %.113, splat (float 0x3FF0000000000000)
  %.115 = bitcast <8 x float> %.104 to <8 x i32>
  %.116 = sub <8 x i32> %.115, splat (i32 1262485504)
  %.117 = ashr <8 x i32> %.116, splat (i32 1)
  %.118 = sub <8 x i32> %.116, %.117
  %.119 = add <8 x i32> %.117, splat (i32 127)
  %.120 = shl <8 x i32> %.119, splat (i32 23)
  %.121 = bitcast <8 x i32> %.120 to <8 x float>
  %.122 = fmul <8 x float> %.114, %.121
  %.123 = add <8 x i32> %.118, splat (i32 127)
  %.124 = shl <8 x i32> %.123, splat (i32 23)
  %.125 = bitcast <8 x i32> %.124 to <8 x float>
  %.126 = fmul <8 x float> %.122, %.125
  %.127 = load <8 x float>, ptr %t0.1
  %.128 = fadd contract <8 x float> %.126, %.127
  store <8 x float> %.128, ptr %t0.1
  %.129 = getelementptr inbounds float, ptr %scratch, i64 %.96
  store <8 x float> %.126, ptr %.129, align 4
  %.130 = add i64 %c.3, 16
  %.131 = icmp slt i64 %.130, 96
  br i1 %.131, label %c.2, label %c.end.1
c.end.1:
  %.132 = trunc i64 4 to i32
  %.133 = insertelement <8 x i32> poison, i32 %.132, i32 0
  %.134 = shufflevector <8 x i32> %.133, <8 x i32> poison, <8 x i32> zeroinitializer
  %.135 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.134
  %.136 = getelementptr inbounds float, ptr %.59, i64 96
  %.137 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %.136, i32 4, <8 x i1> %.135, <8 x float> zeroinitializer)
  %.138 = fsub <8 x float> %.137, %.62
  %.139 = fcmp olt <8 x float> splat (float 0x4056400000000000), %.138
  %.140 = select <8 x i1> %.139, <8 x float> splat (float 0x4056400000000000), <8 x float> %.138
  %.141 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %.140
  %.142 = select <8 x i1> %.141, <8 x float> splat (float 0xC05A000000000000), <8 x float> %.140
  %.143 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.142, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %.144 = fsub <8 x float> %.143, splat (float 0x4168000000000000)
  %.145 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.144, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %.142)
  %.146 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.144, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %.145)
  %.147 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %.146, <8 x float> splat (float 0x3F812398E0000000))
  %.148 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.147, <8 x float> %.146, <8 x float> splat (float 0x3FA5558B00000000))
  %.149 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.148, <8 x float> %.146, <8 x float> splat (float 0x3FC5554920000000))
  %.150 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.149, <8 x float> %.146, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %.151 = fmul <8 x float> %.146, %.146
  %.152 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.151, <8 x float> %.150, <8 x float> %.146)
  %.153 = fadd <8 x float> %.152, splat (float 0x3FF0000000000000)
  %.154 = bitcast <8 x float> %.143 to <8 x i32>
  %.155 = sub <8 x i32> %.154, splat (i32 1262485504)
  %.156 = ashr <8 x i32> %.155, splat (i32 1)
  %.157 = sub <8 x i32> %.155, %.156
  %.158 = add <8 x i32> %.156, splat (i32 127)
  %.159 = shl <8 x i32> %.158, splat (i32 23)
  %.160 = bitcast <8 x i32> %.159 to <8 x float>
  %.161 = fmul <8 x float> %.153, %.160
  %.162 = add <8 x i32> %.157, splat (i32 127)
  %.163 = shl <8 x i32> %.162, splat (i32 23)
  %.164 = bitcast <8 x i32> %.163 to <8 x float>
  %.165 = fmul <8 x float> %.161, %.164
  %.166 = load <8 x float>, ptr %t0.0
  %.167 = select <8 x i1> %.135, <8 x float> %.165, <8 x float> splat (float 0x0000000000000000)
  %.168 = fadd contract <8 x float> %.167, %.166
  store <8 x float> %.168, ptr %t0.0
  %.169 = getelementptr inbounds float, ptr %scratch, i64 96
  store <8 x float> %.165, ptr %.169, align 4
  %.170 = load <8 x float>, ptr %t0.0
  %.171 = load <8 x float>, ptr %t0.1
  %.172 = fadd contract <8 x float> %.170, %.171
  %.173 = shufflevector <8 x float> %.172, <8 x float> %.172, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %.174 = shufflevector <8 x float> %.172, <8 x float> %.172, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %.175 = fadd contract <4 x float> %.173, %.174
  %.176 = shufflevector <4 x float> %.175, <4 x float> %.175, <2 x i32> <i32 0, i32 1>
  %.177 = shufflevector <4 x float> %.175, <4 x float> %.175, <2 x i32> <i32 2, i32 3>
  %.178 = fadd contract <2 x float> %.176, %.177
  %.179 = shufflevector <2 x float> %.178, <2 x float> %.178, <1 x i32> <i32 0>
  %.180 = shufflevector <2 x float> %.178, <2 x float> %.178, <1 x i32> <i32 1>
  %.181 = fadd contract <1 x float> %.179, %.180
  %.182 = extractelement <1 x float> %.181, i32 0
  store float %.182, ptr %t0
  ; pass over c: result
  %.183 = load float, ptr %t0
  %.184 = insertelement <8 x float> poison, float %.183, i32 0
  %.185 = shufflevector <8 x float> %.184, <8 x float> poison, <8 x i32> zeroinitializer
  %.186 = mul i64 %.1, 100
  %.187 = getelementptr inbounds float, ptr %out0, i64 %.186
  br label %c.4
c.4:
  %c.5 = phi i64 [0, %c.end.1], [%.197, %c.4]
  %.188 = getelementptr inbounds float, ptr %scratch, i64 %c.5
  %.189 = load <8 x float>, ptr %.188, align 4
  %.190 = fdiv <8 x float> %.189, %.185
  %.191 = getelementptr inbounds float, ptr %.187, i64 %c.5
  store <8 x float> %.190, ptr %.191, align 4
  %.192 = add i64 %c.5, 8
  %.193 = getelementptr inbounds float, ptr %scratch, i64 %.192
  %.194 = load <8 x float>, ptr %.193, align 4
  %.195 = fdiv <8 x float> %.194, %.185
  %.196 = getelementptr inbounds float, ptr %.187, i64 %.192
  store <8 x float> %.195, ptr %.196, align 4
  %.197 = add i64 %c.5, 16
  %.198 = icmp slt i64 %.197, 96
  br i1 %.198, label %c.4, label %c.end.2
c.end.2:
  %.199 = trunc i64 4 to i32
  %.200 = insertelement <8 x i32> poison, i32 %.199, i32 0
  %.201 = shufflevector <8 x i32> %.200, <8 x i32> poison, <8 x i32> zeroinitializer
  %.202 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %.201
  %.203 = getelementptr inbounds float, ptr %scratch, i64 96
  %.204 = load <8 x float>, ptr %.203, align 4
  %.205 = fdiv <8 x float> %.204, %.185
  %.206 = getelementptr inbounds float, ptr %.187, i64 96
  call void @llvm.masked.store.v8f32.p0(<8 x float> %.205, ptr %.206, i32 4, <8 x i1> %.202)
  %.207 = add i64 %tile.1, 1
  %.208 = icmp slt i64 %.207, %count
  br i1 %.208, label %tile, label %tile.end
tile.end:
  ret void
}

@max_sum_16_scratch_bytes = constant i64 4416

declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, i32, <8 x i1>, <8 x float>)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, i32, <8 x i1>)
