; contraction register=4x16 m=4 n=1x2 k=2x32 pack_a=rows pack_b=panels order=row_major inner=ij unroll=2 prefetch=8
;
; in0: (48, 64) float32
; in1: (64, 32) float32
; in2: (32,) float32
; out0: (48, 32) float32
;
; kernel dot_48x32: grid m.0 in 4, n.0 in 1  [lanes 8, vectors 1]
;   for k.0 in 2:
;     a: (m 12, k 32) float32 = load in0[m.0*12 : +12, k.0*32 : +32]  (packed in padded rows, panels of 4 along m)
;     for n.1 in 2:  # while n.0*32 + n.1*16 < 32
;       b: (k 32, n 16) float32 = load in1[k.0*32 : +32, n.0*32 + n.1*16 : +16]  (packed in panels of 16 along n)
;       for i in 3:  # while i*4 + m.0*12 < 48
;         for j in 1:  # while j*16 + n.0*32 + n.1*16 < 32
;           c: (m 4, n 16) float32 = 0
;           a_panel: (m 4, k 32) float32 = a[i*4 : +4, 0 : +32]
;           b_panel: (k 32, n 16) float32 = b[0 : +32, j*16 : +16]
;           prefetch out0[i*4 + m.0*12 : +4, j*16 + n.0*32 + n.1*16 : +16]
;           c += dot(a_panel, b_panel) over k  (unrolled 2, b_panel prefetched 8 ahead)
;           if k.0 != 0:
;             before: (m 4, n 16) float32 = load out0[i*4 + m.0*12 : +4, j*16 + n.0*32 + n.1*16 : +16]
;             c: (m 4, n 16) float32 = add(c, before)
;           if k.0 == 1:
;             in2: (n 16) float32 = load in2[j*16 + n.0*32 + n.1*16 : +16]
;             t: (m 4, n 16) float32 = add(c, in2)
;             out: (m 4, n 16) float32 = maximum(t, 0)
;             store out0[i*4 + m.0*12 : +4, j*16 + n.0*32 + n.1*16 : +16] = out
;           else:
;             store out0[i*4 + m.0*12 : +4, j*16 + n.0*32 + n.1*16 : +16] = c

define void @dot_48x32(ptr noalias %in0, ptr noalias %in1, ptr noalias %in2, ptr noalias %out0, ptr noalias %scratch, i64 %first, i64 %count) nounwind "prefer-vector-width"="256" {
entry:
  br label %tile
tile:
  %tile.1 = phi i64 [0, %entry], [%.217, %k.0.end]
  %.1 = add i64 %first, %tile.1
  br label %k.0
k.0:
  %k.0.1 = phi i64 [0, %tile], [%.215, %n.1.end]
  ; pack in0 in padded rows of 4 along m
  br label %a.panel
a.panel:
  %a.panel.1 = phi i64 [0, %k.0], [%.25, %pack.k.end]
  %.2 = mul i64 %.1, 12
  %.3 = add i64 %a.panel.1, %.2
  %.4 = call i64 @llvm.smin.i64(i64 %.3, i64 44)
  %.5 = mul i64 %.4, 64
  %.6 = mul i64 %k.0.1, 32
  %.7 = add i64 %.5, %.6
  %.8 = getelementptr inbounds float, ptr %in0, i64 %.7
  %.9 = mul i64 %a.panel.1, 48
  %.10 = getelementptr inbounds float, ptr %scratch, i64 %.9
  br label %pack.k
pack.k:
  %pack.k.1 = phi i64 [0, %a.panel], [%.23, %pack.k]
  %.11 = getelementptr inbounds float, ptr %.8, i64 %pack.k.1
  %.12 = getelementptr inbounds float, ptr %.10, i64 %pack.k.1
  %.13 = load <8 x float>, ptr %.11, align 4
  %.14 = getelementptr inbounds float, ptr %.11, i64 64
  %.15 = load <8 x float>, ptr %.14, align 4
  %.16 = getelementptr inbounds float, ptr %.11, i64 128
  %.17 = load <8 x float>, ptr %.16, align 4
  %.18 = getelementptr inbounds float, ptr %.11, i64 192
  %.19 = load <8 x float>, ptr %.18, align 4
  store <8 x float> %.13, ptr %.12, align 4
  %.20 = getelementptr inbounds float, ptr %.12, i64 48
  store <8 x float> %.15, ptr %.20, align 4
  %.21 = getelementptr inbounds float, ptr %.12, i64 96
  store <8 x float> %.17, ptr %.21, align 4
  %.22 = getelementptr inbounds float, ptr %.12, i64 144
  store <8 x float> %.19, ptr %.22, align 4
  %.23 = add i64 %pack.k.1, 8
  %.24 = icmp slt i64 %.23, 32
  br i1 %.24, label %pack.k, label %pack.k.end
pack.k.end:
  %.25 = add i64 %a.panel.1, 4
  %.26 = icmp slt i64 %.25, 12
  br i1 %.26, label %a.panel, label %a.panel.end
a.panel.end:
  br label %n.1
n.1:
  %n.1.1 = phi i64 [0, %a.panel.end], [%.213, %i.end]
  %.27 = getelementptr inbounds i8, ptr %scratch, i64 4416
  ; pack in1 in panels of 16 along n
  br label %pack.k.2
pack.k.2:
  %pack.k.3 = phi i64 [0, %n.1], [%.42, %pack.k.2]
  %.28 = mul i64 %k.0.1, 32
  %.29 = mul i64 %.28, 32
  %.30 = mul i64 %n.1.1, 16
  %.31 = call i64 @llvm.smin.i64(i64 %.30, i64 16)
  %.32 = add i64 %.29, %.31
  %.33 = getelementptr inbounds float, ptr %in1, i64 %.32
  %.34 = mul i64 %pack.k.3, 32
  %.35 = getelementptr inbounds float, ptr %.33, i64 %.34
  %.36 = mul i64 %pack.k.3, 16
  %.37 = getelementptr inbounds float, ptr %.27, i64 %.36
  %.38 = load <8 x float>, ptr %.35, align 4
  store <8 x float> %.38, ptr %.37, align 4
  %.39 = getelementptr inbounds float, ptr %.35, i64 8
  %.40 = load <8 x float>, ptr %.39, align 4
  %.41 = getelementptr inbounds float, ptr %.37, i64 8
  store <8 x float> %.40, ptr %.41, align 4
  %.42 = add i64 %pack.k.3, 1
  %.43 = icmp slt i64 %.42, 32
  br i1 %.43, label %pack.k.2, label %pack.k.end.1
pack.k.end.1:
  br label %i
i:
  %i.1 = phi i64 [0, %pack.k.end.1], [%.211, %k.0.either.1]
  %.44 = mul i64 %i.1, 192
  %.45 = getelementptr inbounds float, ptr %scratch, i64 %.44
  %.46 = mul i64 %i.1, 4
  %.47 = mul i64 %.1, 12
  %.48 = add i64 %.46, %.47
  %.49 = mul i64 %.48, 32
  %.50 = mul i64 %n.1.1, 16
  %.51 = add i64 %.49, %.50
  %.52 = getelementptr inbounds float, ptr %out0, i64 %.51
  call void @llvm.prefetch.p0(ptr %.52, i32 1, i32 3, i32 1)
  %.53 = getelementptr inbounds float, ptr %.52, i64 8
  call void @llvm.prefetch.p0(ptr %.53, i32 1, i32 3, i32 1)
  %.54 = getelementptr inbounds float, ptr %.52, i64 32
  call void @llvm.prefetch.p0(ptr %.54, i32 1, i32 3, i32 1)
  %.55 = getelementptr inbounds float, ptr %.52, i64 40
  call void @llvm.prefetch.p0(ptr %.55, i32 1, i32 3, i32 1)
  %.56 = getelementptr inbounds float, ptr %.52, i64 64
  call void @llvm.prefetch.p0(ptr %.56, i32 1, i32 3, i32 1)
  %.57 = getelementptr inbounds float, ptr %.52, i64 72
  call void @llvm.prefetch.p0(ptr %.57, i32 1, i32 3, i32 1)
  %.58 = getelementptr inbounds float, ptr %.52, i64 96
  call void @llvm.prefetch.p0(ptr %.58, i32 1, i32 3, i32 1)
  %.59 = getelementptr inbounds float, ptr %.52, i64 104
  call void @llvm.prefetch.p0(ptr %.59, i32 1, i32 3, i32 1)
  ; c += a_panel . b_panel: 4 x 16 in registers, 2 steps a turn
  br label %k
k:
  %left = phi i64 [32, %i], [%.120, %k]
  %a.at = phi ptr [%.45, %i], [%.118, %k]
  %b.at = phi ptr [%.27, %i], [%.119, %k]
  %phi = phi <8 x float> [splat (float 0x0000000000000000), %i], [%.98, %k]
  %phi.1 = phi <8 x float> [splat (float 0x0000000000000000), %i], [%.99, %k]
  %phi.2 = phi <8 x float> [splat (float 0x0000000000000000), %i], [%.104, %k]
  %phi.3 = phi <8 x float> [splat (float 0x0000000000000000), %i], [%.105, %k]
  %phi.4 = phi <8 x float> [splat (float 0x0000000000000000), %i], [%.110, %k]
  %phi.5 = phi <8 x float> [splat (float 0x0000000000000000), %i], [%.111, %k]
  %phi.6 = phi <8 x float> [splat (float 0x0000000000000000), %i], [%.116, %k]
  %phi.7 = phi <8 x float> [splat (float 0x0000000000000000), %i], [%.117, %k]
  %.60 = getelementptr inbounds float, ptr %b.at, i64 128
  call void @llvm.prefetch.p0(ptr %.60, i32 0, i32 3, i32 1)
  %.61 = getelementptr inbounds float, ptr %b.at, i64 136
  call void @llvm.prefetch.p0(ptr %.61, i32 0, i32 3, i32 1)
  %.62 = load <8 x float>, ptr %b.at, align 4
  %.63 = getelementptr inbounds float, ptr %b.at, i64 8
  %.64 = load <8 x float>, ptr %.63, align 4
  %.65 = load float, ptr %a.at, align 4
  %.66 = insertelement <8 x float> poison, float %.65, i32 0
  %.67 = shufflevector <8 x float> %.66, <8 x float> poison, <8 x i32> zeroinitializer
  %.68 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.67, <8 x float> %.62, <8 x float> %phi)
  %.69 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.67, <8 x float> %.64, <8 x float> %phi.1)
  %.70 = getelementptr inbounds float, ptr %a.at, i64 48
  %.71 = load float, ptr %.70, align 4
  %.72 = insertelement <8 x float> poison, float %.71, i32 0
  %.73 = shufflevector <8 x float> %.72, <8 x float> poison, <8 x i32> zeroinitializer
  %.74 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.73, <8 x float> %.62, <8 x float> %phi.2)
  %.75 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.73, <8 x float> %.64, <8 x float> %phi.3)
  %.76 = getelementptr inbounds float, ptr %a.at, i64 96
  %.77 = load float, ptr %.76, align 4
  %.78 = insertelement <8 x float> poison, float %.77, i32 0
  %.79 = shufflevector <8 x float> %.78, <8 x float> poison, <8 x i32> zeroinitializer
  %.80 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.79, <8 x float> %.62, <8 x float> %phi.4)
  %.81 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.79, <8 x float> %.64, <8 x float> %phi.5)
  %.82 = getelementptr inbounds float, ptr %a.at, i64 144
  %.83 = load float, ptr %.82, align 4
  %.84 = insertelement <8 x float> poison, float %.83, i32 0
  %.85 = shufflevector <8 x float> %.84, <8 x float> poison, <8 x i32> zeroinitializer
  %.86 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.85, <8 x float> %.62, <8 x float> %phi.6)
  %.87 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.85, <8 x float> %.64, <8 x float> %phi.7)
  %.88 = getelementptr inbounds float, ptr %b.at, i64 144
  call void @llvm.prefetch.p0(ptr %.88, i32 0, i32 3, i32 1)
  %.89 = getelementptr inbounds float, ptr %b.at, i64 152
  call void @llvm.prefetch.p0(ptr %.89, i32 0, i32 3, i32 1)
  %.90 = getelementptr inbounds float, ptr %b.at, i64 16
  %.91 = load <8 x float>, ptr %.90, align 4
  %.92 = getelementptr inbounds float, ptr %b.at, i64 24
  %.93 = load <8 x float>, ptr %.92, align 4
  %.94 = getelementptr inbounds float, ptr %a.at, i64 1
  %.95 = load float, ptr %.94, align 4
  %.96 = insertelement <8 x float> poison, float %.95, i32 0
  %.97 = shufflevector <8 x float> %.96, <8 x float> poison, <8 x i32> zeroinitializer
  %.98 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.97, <8 x float> %.91, <8 x float> %.68)
  %.99 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.97, <8 x float> %.93, <8 x float> %.69)
  %.100 = getelementptr inbounds float, ptr %a.at, i64 49
  %.101 = load float, ptr %.100, align 4
  %.102 = insertelement <8 x float> poison, float %.101, i32 0
  %.103 = shufflevector <8 x float> %.102, <8 x float> poison, <8 x i32> zeroinitializer
  %.104 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.103, <8 x float> %.91, <8 x float> %.74)
  %.105 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.103, <8 x float> %.93, <8 x float> %.75)
  %.106 = getelementptr inbounds float, ptr %a.at, i64 97
  %.107 = load float, ptr %.106, align 4
  %.108 = insertelement <8 x float> poison, float %.107, i32 0
  %.109 = shufflevector <8 x float> %.108, <8 x float> poison, <8 x i32> zeroinitializer
  %.110 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.109, <8 x float> %.91, <8 x float> %.80)
  %.111 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.109, <8 x float> %.93, <8 x float> %.81)
  %.112 = getelementptr inbounds float, ptr %a.at, i64 145
  %.113 = load float, ptr %.112, align 4
  %.114 = insertelement <8 x float> poison, float %.113, i32 0
  %.115 = shufflevector <8 x float> %.114, <8 x float> poison, <8 x i32> zeroinitializer
  %.116 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.115, <8 x float> %.91, <8 x float> %.86)
  %.117 = call <8 x float> @llvm.fma.v8f32(<8 x float> %.115, <8 x float> %.93, <8 x float> %.87)
  %.118 = getelementptr inbounds float, ptr %a.at, i64 2
  %.119 = getelementptr inbounds float, ptr %b.at, i64 32
  %.120 = sub i64 %left, 2
  %.121 = icmp sgt i64 %.120, 0
  br i1 %.121, label %k, label %k.end
k.end:
  %.122 = icmp eq i64 %k.0.1, 0
  br i1 %.122, label %k.0.is, label %k.0.is_not
k.0.is:
  br label %k.0.either
k.0.is_not:
  %.123 = mul i64 %i.1, 4
  %.124 = mul i64 %.1, 12
  %.125 = add i64 %.123, %.124
  %.126 = mul i64 %.125, 32
  %.127 = mul i64 %n.1.1, 16
  %.128 = add i64 %.126, %.127
  %.129 = getelementptr inbounds float, ptr %out0, i64 %.128
  %.130 = load <8 x float>, ptr %.129, align 4
  %.131 = getelementptr inbounds float, ptr %.129, i64 8
  %.132 = load <8 x float>, ptr %.131, align 4
  %.133 = getelementptr inbounds float, ptr %.129, i64 32
  %.134 = load <8 x float>, ptr %.133, align 4
  %.135 = getelementptr inbounds float, ptr %.129, i64 40
  %.136 = load <8 x float>, ptr %.135, align 4
  %.137 = getelementptr inbounds float, ptr %.129, i64 64
  %.138 = load <8 x float>, ptr %.137, align 4
  %.139 = getelementptr inbounds float, ptr %.129, i64 72
  %.140 = load <8 x float>, ptr %.139, align 4
  %.141 = getelementptr inbounds float, ptr %.129, i64 96
  %.142 = load <8 x float>, ptr %.141, align 4
  %.143 = getelementptr inbounds float, ptr %.129, i64 104
  %.144 = load <8 x float>, ptr %.143, align 4
  %.145 = fadd contract <8 x float> %.98, %.130
  %.146 = fadd contract <8 x float> %.99, %.132
  %.147 = fadd contract <8 x float> %.104, %.134
  %.148 = fadd contract <8 x float> %.105, %.136
  %.149 = fadd contract <8 x float> %.110, %.138
  %.150 = fadd contract <8 x float> %.111, %.140
  %.151 = fadd contract <8 x float> %.116, %.142
  %.152 = fadd contract <8 x float> %.117, %.144
  br label %k.0.either
k.0.either:
  %phi.8 = phi <8 x float> [%.98, %k.0.is], [%.145, %k.0.is_not]
  %phi.9 = phi <8 x float> [%.99, %k.0.is], [%.146, %k.0.is_not]
  %phi.10 = phi <8 x float> [%.104, %k.0.is], [%.147, %k.0.is_not]
  %phi.11 = phi <8 x float> [%.105, %k.0.is], [%.148, %k.0.is_not]
  %phi.12 = phi <8 x float> [%.110, %k.0.is], [%.149, %k.0.is_not]
  %phi.13 = phi <8 x float> [%.111, %k.0.is], [%.150, %k.0.is_not]
  %phi.14 = phi <8 x float> [%.116, %k.0.is], [%.151, %k.0.is_not]
  %phi.15 = phi <8 x float> [%.117, %k.0.is], [%.152, %k.0.is_not]
  %.153 = icmp eq i64 %k.0.1, 1
  br i1 %.153, label %k.0.is.1, label %k.0.is_not.1
k.0.is.1:
  %.154 = mul i64 %n.1.1, 16
  %.155 = getelementptr inbounds float, ptr %in2, i64 %.154
  %.156 = load <8 x float>, ptr %.155, align 4
  %.157 = getelementptr inbounds float, ptr %.155, i64 8
  %.158 = load <8 x float>, ptr %.157, align 4
  %.159 = fadd contract <8 x float> %phi.8, %.156
  %.160 = fadd contract <8 x float> %phi.9, %.158
  %.161 = fadd contract <8 x float> %phi.10, %.156
  %.162 = fadd contract <8 x float> %phi.11, %.158
  %.163 = fadd contract <8 x float> %phi.12, %.156
  %.164 = fadd contract <8 x float> %phi.13, %.158
  %.165 = fadd contract <8 x float> %phi.14, %.156
  %.166 = fadd contract <8 x float> %phi.15, %.158
  %.167 = fcmp ugt <8 x float> %.159, splat (float 0x0000000000000000)
  %.168 = select <8 x i1> %.167, <8 x float> %.159, <8 x float> splat (float 0x0000000000000000)
  %.169 = fcmp ugt <8 x float> %.160, splat (float 0x0000000000000000)
  %.170 = select <8 x i1> %.169, <8 x float> %.160, <8 x float> splat (float 0x0000000000000000)
  %.171 = fcmp ugt <8 x float> %.161, splat (float 0x0000000000000000)
  %.172 = select <8 x i1> %.171, <8 x float> %.161, <8 x float> splat (float 0x0000000000000000)
  %.173 = fcmp ugt <8 x float> %.162, splat (float 0x0000000000000000)
  %.174 = select <8 x i1> %.173, <8 x float> %.162, <8 x float> splat (float 0x0000000000000000)
  %.175 = fcmp ugt <8 x float> %.163, splat (float 0x0000000000000000)
  %.176 = select <8 x i1> %.175, <8 x float> %.163, <8 x float> splat (float 0x0000000000000000)
  %.177 = fcmp ugt <8 x float> %.164, splat (float 0x0000000000000000)
  %.178 = select <8 x i1> %.177, <8 x float> %.164, <8 x float> splat (float 0x0000000000000000)
  %.179 = fcmp ugt <8 x float> %.165, splat (float 0x0000000000000000)
  %.180 = select <8 x i1> %.179, <8 x float> %.165, <8 x float> splat (float 0x0000000000000000)
  %.181 = fcmp ugt <8 x float> %.166, splat (float 0x0000000000000000)
  %.182 = select <8 x i1> %.181, <8 x float> %.166, <8 x float> splat (float 0x0000000000000000)
  %.183 = mul i64 %i.1, 4
  %.184 = mul i64 %.1, 12
  %.185 = add i64 %.183, %.184
  %.186 = mul i64 %.185, 32
  %.187 = mul i64 %n.1.1, 16
  %.188 = add i64 %.186, %.187
  %.189 = getelementptr inbounds float, ptr %out0, i64 %.188
  store <8 x float> %.168, ptr %.189, align 4
  %.190 = getelementptr inbounds float, ptr %.189, i64 8
  store <8 x float> %.170, ptr %.190, align 4
  %.191 = getelementptr inbounds float, ptr %.189, i64 32
  store <8 x float> %.172, ptr %.191, align 4
  %.192 = getelementptr inbounds float, ptr %.189, i64 40
  store <8 x float> %.174, ptr %.192, align 4
  %.193 = getelementptr inbounds float, ptr %.189, i64 64
  store <8 x float> %.176, ptr %.193, align 4
  %.194 = getelementptr inbounds float, ptr %.189, i64 72
  store <8 x float> %.178, ptr %.194, align 4
  %.195 = getelementptr inbounds float, ptr %.189, i64 96
  store <8 x float> %.180, ptr %.195, align 4
  %.196 = getelementptr inbounds float, ptr %.189, i64 104
  store <8 x float> %.182, ptr %.196, align 4
  br label %k.0.either.1
k.0.is_not.1:
  %.197 = mul i64 %i.1, 4
  %.198 = mul i64 %.1, 12
  %.199 = add i64 %.197, %.198
  %.200 = mul i64 %.199, 32
  %.201 = mul i64 %n.1.1, 16
  %.202 = add i64 %.200, %.201
  %.203 = getelementptr inbounds float, ptr %out0, i64 %.202
  store <8 x float> %phi.8, ptr %.203, align 4
  %.204 = getelementptr inbounds float, ptr %.203, i64 8
  store <8 x float> %phi.9, ptr %.204, align 4
  %.205 = getelementptr inbounds float, ptr %.203, i64 32
  store <8 x float> %phi.10, ptr %.205, align 4
  %.206 = getelementptr inbounds float, ptr %.203, i64 40
  store <8 x float> %phi.11, ptr %.206, align 4
  %.207 = getelementptr inbounds float, ptr %.203, i64 64
  store <8 x float> %phi.12, ptr %.207, align 4
  %.208 = getelementptr inbounds float, ptr %.203, i64 72
  store <8 x float> %phi.13, ptr %.208, align 4
  %.209 = getelementptr inbounds float, ptr %.203, i64 96
  store <8 x float> %phi.14, ptr %.209, align 4
  %.210 = getelementptr inbounds float, ptr %.203, i64 104
  store <8 x float> %phi.15, ptr %.210, align 4
  br label %k.0.either.1
k.0.either.1:
  %.211 = add i64 %i.1, 1
  %.212 = icmp slt i64 %.211, 3
  br i1 %.212, label %i, label %i.end
i.end:
  %.213 = add i64 %n.1.1, 1
  %.214 = icmp slt i64 %.213, 2
  br i1 %.214, label %n.1, label %n.1.end
n.1.end:
  %.215 = add i64 %k.0.1, 1
  %.216 = icmp slt i64 %.215, 2
  br i1 %.216, label %k.0, label %k.0.end
k.0.end:
  %.217 = add i64 %tile.1, 1
  %.218 = icmp slt i64 %.217, %count
  br i1 %.218, label %tile, label %tile.end
tile.end:
  ret void
}

@dot_48x32_scratch_bytes = constant i64 8832

declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
