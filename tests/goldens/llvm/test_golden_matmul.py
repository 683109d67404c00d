; tiled_dot_cpu m=4x3x4 n=1x2x16 k=2x32 pack_a=True pack_b=True order=mn inner=ij unroll=2
;
; kernel matmul: grid m.0 in 4, n.0 in 1  [lanes 8, vectors 1]
;   for k.0 in 2:
;     a: (m 12, k 32) float32 = load a[m.0*12 : +12, k.0*32 : +32]  (packed in panels of 4 along m)
;     b: (k 32, n 32) float32 = load b[k.0*32 : +32, n.0*32 : +32]  (packed in panels of 16 along n)
;     for i in 3:  # while i*4 + m.0*12 < 48
;       for j in 2:  # while j*16 + n.0*32 < 32
;         if k.0 == 0:
;           c: (m 4, n 16) float32 = 0
;         else:
;           c: (m 4, n 16) float32 = load partial[i + m.0*3, j + n.0*2, 0 : +4, 0 : +16]
;         a_panel: (m 4, k 32) float32 = a[i*4 : +4, 0 : +32]
;         b_panel: (k 32, n 16) float32 = b[0 : +32, j*16 : +16]
;         c += dot(a_panel, b_panel) over k  (unrolled 2)
;         if k.0 == 1:
;           bias: (n 16) float32 = load bias[j*16 + n.0*32 : +16]
;           t: (m 4, n 16) float32 = add(c, bias)
;           out: (m 4, n 16) float32 = maximum(t, 0)
;           store out[i*4 + m.0*12 : +4, j*16 + n.0*32 : +16] = out
;         else:
;           store partial[i + m.0*3, j + n.0*2, 0 : +4, 0 : +16] = c

; ModuleID = "matmul"
target triple = "unknown-unknown-unknown"
target datalayout = ""

define void @"matmul"(ptr noalias %"a", ptr noalias %"b", ptr noalias %"bias", ptr noalias %"out", ptr noalias %"partial", ptr noalias %"scratch", i64 %"first", i64 %"count") "prefer-vector-width"="256" nounwind
{
entry:
  br label %"tile"
tile:
  %"tile.1" = phi  i64 [0, %"entry"], [%".342", %"k.0.end"]
  %".11" = add i64 %"first", %"tile.1"
  br label %"k.0"
k.0:
  %"k.0.1" = phi  i64 [0, %"tile"], [%".339", %"i.end"]
  %".13" = getelementptr inbounds i8, ptr %"scratch", i64 0
  ; pack a in panels of 4 along m
  br label %"a.panel"
a.panel:
  %"a.panel.1" = phi  i64 [0, %"k.0"], [%".98", %"pack.k.end"]
  %".16" = mul nuw nsw i64 %".11", 12
  %".17" = add nuw nsw i64 %"a.panel.1", %".16"
  %".18" = call i64 @"llvm.smin.i64"(i64 %".17", i64 44)
  %".19" = mul nuw nsw i64 %".18", 64
  %".20" = add i64 0, %".19"
  %".21" = mul nuw nsw i64 %"k.0.1", 32
  %".22" = add i64 %".20", %".21"
  %".23" = getelementptr inbounds float, ptr %"a", i64 %".22"
  %".24" = mul nuw nsw i64 %"a.panel.1", 32
  %".25" = getelementptr inbounds float, ptr %".13", i64 %".24"
  br label %"pack.k"
pack.k:
  %"pack.k.1" = phi  i64 [0, %"a.panel"], [%".95", %"pack.k"]
  %".27" = add i64 %"pack.k.1", 0
  %".28" = getelementptr inbounds float, ptr %".23", i64 %".27"
  %".29" = load <8 x float>, ptr %".28", align 4
  %".30" = add i64 %"pack.k.1", 64
  %".31" = getelementptr inbounds float, ptr %".23", i64 %".30"
  %".32" = load <8 x float>, ptr %".31", align 4
  %".33" = add i64 %"pack.k.1", 128
  %".34" = getelementptr inbounds float, ptr %".23", i64 %".33"
  %".35" = load <8 x float>, ptr %".34", align 4
  %".36" = add i64 %"pack.k.1", 192
  %".37" = getelementptr inbounds float, ptr %".23", i64 %".36"
  %".38" = load <8 x float>, ptr %".37", align 4
  %".39" = shufflevector <8 x float> %".29", <8 x float> %".32", <8 x i32> <i32 0, i32 8, i32 1, i32 9, i32 4, i32 12, i32 5, i32 13>
  %".40" = shufflevector <8 x float> %".35", <8 x float> %".38", <8 x i32> <i32 0, i32 8, i32 1, i32 9, i32 4, i32 12, i32 5, i32 13>
  %".41" = shufflevector <8 x float> %".29", <8 x float> %".32", <8 x i32> <i32 2, i32 10, i32 3, i32 11, i32 6, i32 14, i32 7, i32 15>
  %".42" = shufflevector <8 x float> %".35", <8 x float> %".38", <8 x i32> <i32 2, i32 10, i32 3, i32 11, i32 6, i32 14, i32 7, i32 15>
  %".43" = shufflevector <8 x float> %".39", <8 x float> %".40", <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %".44" = shufflevector <8 x float> %".39", <8 x float> %".40", <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %".45" = shufflevector <8 x float> %".41", <8 x float> %".42", <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %".46" = shufflevector <8 x float> %".41", <8 x float> %".42", <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %".47" = shufflevector <8 x float> poison, <8 x float> poison, <8 x i32> <i32 0, i32 8, i32 1, i32 9, i32 4, i32 12, i32 5, i32 13>
  %".48" = shufflevector <8 x float> poison, <8 x float> poison, <8 x i32> <i32 0, i32 8, i32 1, i32 9, i32 4, i32 12, i32 5, i32 13>
  %".49" = shufflevector <8 x float> poison, <8 x float> poison, <8 x i32> <i32 2, i32 10, i32 3, i32 11, i32 6, i32 14, i32 7, i32 15>
  %".50" = shufflevector <8 x float> poison, <8 x float> poison, <8 x i32> <i32 2, i32 10, i32 3, i32 11, i32 6, i32 14, i32 7, i32 15>
  %".51" = shufflevector <8 x float> %".47", <8 x float> %".48", <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %".52" = shufflevector <8 x float> %".47", <8 x float> %".48", <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %".53" = shufflevector <8 x float> %".49", <8 x float> %".50", <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %".54" = shufflevector <8 x float> %".49", <8 x float> %".50", <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %".55" = shufflevector <8 x float> %".43", <8 x float> %".51", <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %".56" = shufflevector <8 x float> %".43", <8 x float> %".51", <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %".57" = shufflevector <8 x float> %".44", <8 x float> %".52", <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %".58" = shufflevector <8 x float> %".44", <8 x float> %".52", <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %".59" = shufflevector <8 x float> %".45", <8 x float> %".53", <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %".60" = shufflevector <8 x float> %".45", <8 x float> %".53", <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %".61" = shufflevector <8 x float> %".46", <8 x float> %".54", <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %".62" = shufflevector <8 x float> %".46", <8 x float> %".54", <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %".63" = mul nuw nsw i64 %"pack.k.1", 4
  %".64" = add i64 %".63", 0
  %".65" = getelementptr inbounds float, ptr %".25", i64 %".64"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".55", ptr %".65", i32 4, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0, i1 0>)
  %".67" = mul nuw nsw i64 %"pack.k.1", 4
  %".68" = add i64 %".67", 4
  %".69" = getelementptr inbounds float, ptr %".25", i64 %".68"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".57", ptr %".69", i32 4, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0, i1 0>)
  %".71" = mul nuw nsw i64 %"pack.k.1", 4
  %".72" = add i64 %".71", 8
  %".73" = getelementptr inbounds float, ptr %".25", i64 %".72"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".59", ptr %".73", i32 4, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0, i1 0>)
  %".75" = mul nuw nsw i64 %"pack.k.1", 4
  %".76" = add i64 %".75", 12
  %".77" = getelementptr inbounds float, ptr %".25", i64 %".76"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".61", ptr %".77", i32 4, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0, i1 0>)
  %".79" = mul nuw nsw i64 %"pack.k.1", 4
  %".80" = add i64 %".79", 16
  %".81" = getelementptr inbounds float, ptr %".25", i64 %".80"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".56", ptr %".81", i32 4, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0, i1 0>)
  %".83" = mul nuw nsw i64 %"pack.k.1", 4
  %".84" = add i64 %".83", 20
  %".85" = getelementptr inbounds float, ptr %".25", i64 %".84"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".58", ptr %".85", i32 4, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0, i1 0>)
  %".87" = mul nuw nsw i64 %"pack.k.1", 4
  %".88" = add i64 %".87", 24
  %".89" = getelementptr inbounds float, ptr %".25", i64 %".88"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".60", ptr %".89", i32 4, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0, i1 0>)
  %".91" = mul nuw nsw i64 %"pack.k.1", 4
  %".92" = add i64 %".91", 28
  %".93" = getelementptr inbounds float, ptr %".25", i64 %".92"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".62", ptr %".93", i32 4, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0, i1 0>)
  %".95" = add nuw nsw i64 %"pack.k.1", 8
  %".96" = icmp slt i64 %".95", 32
  br i1 %".96", label %"pack.k", label %"pack.k.end"
pack.k.end:
  %".98" = add nuw nsw i64 %"a.panel.1", 4
  %".99" = icmp slt i64 %".98", 12
  br i1 %".99", label %"a.panel", label %"a.panel.end"
a.panel.end:
  %".101" = getelementptr inbounds i8, ptr %"scratch", i64 4416
  ; pack b in panels of 16 along n
  br label %"b.panel"
b.panel:
  %"b.panel.1" = phi  i64 [0, %"a.panel.end"], [%".128", %"pack.k.end.1"]
  %".104" = mul nuw nsw i64 %"k.0.1", 32
  %".105" = mul nuw nsw i64 %".104", 32
  %".106" = add i64 0, %".105"
  %".107" = mul nuw nsw i64 0, 32
  %".108" = add nuw nsw i64 %"b.panel.1", %".107"
  %".109" = call i64 @"llvm.smin.i64"(i64 %".108", i64 16)
  %".110" = add i64 %".106", %".109"
  %".111" = getelementptr inbounds float, ptr %"b", i64 %".110"
  %".112" = mul nuw nsw i64 %"b.panel.1", 32
  %".113" = getelementptr inbounds float, ptr %".101", i64 %".112"
  br label %"pack.k.2"
pack.k.2:
  %"pack.k.3" = phi  i64 [0, %"b.panel"], [%".125", %"pack.k.2"]
  %".115" = mul nuw nsw i64 %"pack.k.3", 32
  %".116" = getelementptr inbounds float, ptr %".111", i64 %".115"
  %".117" = mul nuw nsw i64 %"pack.k.3", 16
  %".118" = getelementptr inbounds float, ptr %".113", i64 %".117"
  %".119" = load <8 x float>, ptr %".116", align 4
  store <8 x float> %".119", ptr %".118", align 4
  %".121" = getelementptr inbounds float, ptr %".116", i64 8
  %".122" = load <8 x float>, ptr %".121", align 4
  %".123" = getelementptr inbounds float, ptr %".118", i64 8
  store <8 x float> %".122", ptr %".123", align 4
  %".125" = add nuw nsw i64 %"pack.k.3", 1
  %".126" = icmp slt i64 %".125", 32
  br i1 %".126", label %"pack.k.2", label %"pack.k.end.1"
pack.k.end.1:
  %".128" = add nuw nsw i64 %"b.panel.1", 16
  %".129" = icmp slt i64 %".128", 32
  br i1 %".129", label %"b.panel", label %"b.panel.end"
b.panel.end:
  br label %"i"
i:
  %"i.1" = phi  i64 [0, %"b.panel.end"], [%".336", %"j.end"]
  br label %"j"
j:
  %"j.1" = phi  i64 [0, %"i"], [%".333", %"k.0.either.1"]
  %".133" = icmp eq i64 %"k.0.1", 0
  br i1 %".133", label %"k.0.is", label %"k.0.is_not"
k.0.is:
  br label %"k.0.either"
k.0.is_not:
  %".136" = mul nuw nsw i64 %".11", 3
  %".137" = add nuw nsw i64 %"i.1", %".136"
  %".138" = mul nuw nsw i64 %".137", 128
  %".139" = add i64 0, %".138"
  %".140" = mul nuw nsw i64 0, 2
  %".141" = add nuw nsw i64 %"j.1", %".140"
  %".142" = mul nuw nsw i64 %".141", 64
  %".143" = add i64 %".139", %".142"
  %".144" = mul nuw nsw i64 0, 16
  %".145" = add i64 %".143", %".144"
  %".146" = add i64 %".145", 0
  %".147" = getelementptr inbounds float, ptr %"partial", i64 %".146"
  %".148" = load <8 x float>, ptr %".147", align 4
  %".149" = getelementptr inbounds float, ptr %".147", i64 8
  %".150" = load <8 x float>, ptr %".149", align 4
  %".151" = getelementptr inbounds float, ptr %".147", i64 16
  %".152" = load <8 x float>, ptr %".151", align 4
  %".153" = getelementptr inbounds float, ptr %".147", i64 24
  %".154" = load <8 x float>, ptr %".153", align 4
  %".155" = getelementptr inbounds float, ptr %".147", i64 32
  %".156" = load <8 x float>, ptr %".155", align 4
  %".157" = getelementptr inbounds float, ptr %".147", i64 40
  %".158" = load <8 x float>, ptr %".157", align 4
  %".159" = getelementptr inbounds float, ptr %".147", i64 48
  %".160" = load <8 x float>, ptr %".159", align 4
  %".161" = getelementptr inbounds float, ptr %".147", i64 56
  %".162" = load <8 x float>, ptr %".161", align 4
  br label %"k.0.either"
k.0.either:
  %".164" = phi  <8 x float> [splat (float 0x0000000000000000), %"k.0.is"], [%".148", %"k.0.is_not"]
  %".165" = phi  <8 x float> [splat (float 0x0000000000000000), %"k.0.is"], [%".150", %"k.0.is_not"]
  %".166" = phi  <8 x float> [splat (float 0x0000000000000000), %"k.0.is"], [%".152", %"k.0.is_not"]
  %".167" = phi  <8 x float> [splat (float 0x0000000000000000), %"k.0.is"], [%".154", %"k.0.is_not"]
  %".168" = phi  <8 x float> [splat (float 0x0000000000000000), %"k.0.is"], [%".156", %"k.0.is_not"]
  %".169" = phi  <8 x float> [splat (float 0x0000000000000000), %"k.0.is"], [%".158", %"k.0.is_not"]
  %".170" = phi  <8 x float> [splat (float 0x0000000000000000), %"k.0.is"], [%".160", %"k.0.is_not"]
  %".171" = phi  <8 x float> [splat (float 0x0000000000000000), %"k.0.is"], [%".162", %"k.0.is_not"]
  %".172" = mul nuw nsw i64 %"i.1", 128
  %".173" = getelementptr inbounds float, ptr %".13", i64 %".172"
  %".174" = mul nuw nsw i64 %"j.1", 512
  %".175" = getelementptr inbounds float, ptr %".101", i64 %".174"
  ; c += a_panel . b_panel: 4 x 16 in registers, 2 steps a turn
  br label %"k"
k:
  %"left" = phi  i64 [32, %"k.0.either"], [%".242", %"k"]
  %"a.at" = phi  ptr [%".173", %"k.0.either"], [%".240", %"k"]
  %"b.at" = phi  ptr [%".175", %"k.0.either"], [%".241", %"k"]
  %".178" = phi  <8 x float> [%".164", %"k.0.either"], [%".220", %"k"]
  %".179" = phi  <8 x float> [%".165", %"k.0.either"], [%".221", %"k"]
  %".180" = phi  <8 x float> [%".166", %"k.0.either"], [%".226", %"k"]
  %".181" = phi  <8 x float> [%".167", %"k.0.either"], [%".227", %"k"]
  %".182" = phi  <8 x float> [%".168", %"k.0.either"], [%".232", %"k"]
  %".183" = phi  <8 x float> [%".169", %"k.0.either"], [%".233", %"k"]
  %".184" = phi  <8 x float> [%".170", %"k.0.either"], [%".238", %"k"]
  %".185" = phi  <8 x float> [%".171", %"k.0.either"], [%".239", %"k"]
  %".186" = load <8 x float>, ptr %"b.at", align 4
  %".187" = getelementptr inbounds float, ptr %"b.at", i64 8
  %".188" = load <8 x float>, ptr %".187", align 4
  %".189" = load float, ptr %"a.at", align 4
  %".190" = insertelement <8 x float> poison, float %".189", i32 0
  %".191" = shufflevector <8 x float> %".190", <8 x float> poison, <8 x i32> zeroinitializer
  %".192" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".191", <8 x float> %".186", <8 x float> %".178")
  %".193" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".191", <8 x float> %".188", <8 x float> %".179")
  %".194" = getelementptr inbounds float, ptr %"a.at", i64 1
  %".195" = load float, ptr %".194", align 4
  %".196" = insertelement <8 x float> poison, float %".195", i32 0
  %".197" = shufflevector <8 x float> %".196", <8 x float> poison, <8 x i32> zeroinitializer
  %".198" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".197", <8 x float> %".186", <8 x float> %".180")
  %".199" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".197", <8 x float> %".188", <8 x float> %".181")
  %".200" = getelementptr inbounds float, ptr %"a.at", i64 2
  %".201" = load float, ptr %".200", align 4
  %".202" = insertelement <8 x float> poison, float %".201", i32 0
  %".203" = shufflevector <8 x float> %".202", <8 x float> poison, <8 x i32> zeroinitializer
  %".204" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".203", <8 x float> %".186", <8 x float> %".182")
  %".205" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".203", <8 x float> %".188", <8 x float> %".183")
  %".206" = getelementptr inbounds float, ptr %"a.at", i64 3
  %".207" = load float, ptr %".206", align 4
  %".208" = insertelement <8 x float> poison, float %".207", i32 0
  %".209" = shufflevector <8 x float> %".208", <8 x float> poison, <8 x i32> zeroinitializer
  %".210" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".209", <8 x float> %".186", <8 x float> %".184")
  %".211" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".209", <8 x float> %".188", <8 x float> %".185")
  %".212" = getelementptr inbounds float, ptr %"b.at", i64 16
  %".213" = load <8 x float>, ptr %".212", align 4
  %".214" = getelementptr inbounds float, ptr %"b.at", i64 24
  %".215" = load <8 x float>, ptr %".214", align 4
  %".216" = getelementptr inbounds float, ptr %"a.at", i64 4
  %".217" = load float, ptr %".216", align 4
  %".218" = insertelement <8 x float> poison, float %".217", i32 0
  %".219" = shufflevector <8 x float> %".218", <8 x float> poison, <8 x i32> zeroinitializer
  %".220" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".219", <8 x float> %".213", <8 x float> %".192")
  %".221" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".219", <8 x float> %".215", <8 x float> %".193")
  %".222" = getelementptr inbounds float, ptr %"a.at", i64 5
  %".223" = load float, ptr %".222", align 4
  %".224" = insertelement <8 x float> poison, float %".223", i32 0
  %".225" = shufflevector <8 x float> %".224", <8 x float> poison, <8 x i32> zeroinitializer
  %".226" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".225", <8 x float> %".213", <8 x float> %".198")
  %".227" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".225", <8 x float> %".215", <8 x float> %".199")
  %".228" = getelementptr inbounds float, ptr %"a.at", i64 6
  %".229" = load float, ptr %".228", align 4
  %".230" = insertelement <8 x float> poison, float %".229", i32 0
  %".231" = shufflevector <8 x float> %".230", <8 x float> poison, <8 x i32> zeroinitializer
  %".232" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".231", <8 x float> %".213", <8 x float> %".204")
  %".233" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".231", <8 x float> %".215", <8 x float> %".205")
  %".234" = getelementptr inbounds float, ptr %"a.at", i64 7
  %".235" = load float, ptr %".234", align 4
  %".236" = insertelement <8 x float> poison, float %".235", i32 0
  %".237" = shufflevector <8 x float> %".236", <8 x float> poison, <8 x i32> zeroinitializer
  %".238" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".237", <8 x float> %".213", <8 x float> %".210")
  %".239" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".237", <8 x float> %".215", <8 x float> %".211")
  %".240" = getelementptr inbounds float, ptr %"a.at", i64 8
  %".241" = getelementptr inbounds float, ptr %"b.at", i64 32
  %".242" = sub i64 %"left", 2
  %".243" = icmp sgt i64 %".242", 0
  br i1 %".243", label %"k", label %"k.end"
k.end:
  %".245" = icmp eq i64 %"k.0.1", 1
  br i1 %".245", label %"k.0.is.1", label %"k.0.is_not.1"
k.0.is.1:
  %".247" = mul nuw nsw i64 %"j.1", 16
  %".248" = mul nuw nsw i64 0, 32
  %".249" = add nuw nsw i64 %".247", %".248"
  %".250" = add i64 0, %".249"
  %".251" = getelementptr inbounds float, ptr %"bias", i64 %".250"
  %".252" = load <8 x float>, ptr %".251", align 4
  %".253" = getelementptr inbounds float, ptr %".251", i64 8
  %".254" = load <8 x float>, ptr %".253", align 4
  %".255" = fadd <8 x float> %".220", %".252"
  %".256" = fadd <8 x float> %".221", %".254"
  %".257" = fadd <8 x float> %".226", %".252"
  %".258" = fadd <8 x float> %".227", %".254"
  %".259" = fadd <8 x float> %".232", %".252"
  %".260" = fadd <8 x float> %".233", %".254"
  %".261" = fadd <8 x float> %".238", %".252"
  %".262" = fadd <8 x float> %".239", %".254"
  %".263" = fcmp ugt <8 x float> %".255", splat (float 0x0000000000000000)
  %".264" = select  <8 x i1> %".263", <8 x float> %".255", <8 x float> splat (float 0x0000000000000000)
  %".265" = fcmp ugt <8 x float> %".256", splat (float 0x0000000000000000)
  %".266" = select  <8 x i1> %".265", <8 x float> %".256", <8 x float> splat (float 0x0000000000000000)
  %".267" = fcmp ugt <8 x float> %".257", splat (float 0x0000000000000000)
  %".268" = select  <8 x i1> %".267", <8 x float> %".257", <8 x float> splat (float 0x0000000000000000)
  %".269" = fcmp ugt <8 x float> %".258", splat (float 0x0000000000000000)
  %".270" = select  <8 x i1> %".269", <8 x float> %".258", <8 x float> splat (float 0x0000000000000000)
  %".271" = fcmp ugt <8 x float> %".259", splat (float 0x0000000000000000)
  %".272" = select  <8 x i1> %".271", <8 x float> %".259", <8 x float> splat (float 0x0000000000000000)
  %".273" = fcmp ugt <8 x float> %".260", splat (float 0x0000000000000000)
  %".274" = select  <8 x i1> %".273", <8 x float> %".260", <8 x float> splat (float 0x0000000000000000)
  %".275" = fcmp ugt <8 x float> %".261", splat (float 0x0000000000000000)
  %".276" = select  <8 x i1> %".275", <8 x float> %".261", <8 x float> splat (float 0x0000000000000000)
  %".277" = fcmp ugt <8 x float> %".262", splat (float 0x0000000000000000)
  %".278" = select  <8 x i1> %".277", <8 x float> %".262", <8 x float> splat (float 0x0000000000000000)
  %".279" = mul nuw nsw i64 %"i.1", 4
  %".280" = mul nuw nsw i64 %".11", 12
  %".281" = add nuw nsw i64 %".279", %".280"
  %".282" = mul nuw nsw i64 %".281", 32
  %".283" = add i64 0, %".282"
  %".284" = mul nuw nsw i64 %"j.1", 16
  %".285" = mul nuw nsw i64 0, 32
  %".286" = add nuw nsw i64 %".284", %".285"
  %".287" = add i64 %".283", %".286"
  %".288" = getelementptr inbounds float, ptr %"out", i64 %".287"
  store <8 x float> %".264", ptr %".288", align 4
  %".290" = getelementptr inbounds float, ptr %".288", i64 8
  store <8 x float> %".266", ptr %".290", align 4
  %".292" = getelementptr inbounds float, ptr %".288", i64 32
  store <8 x float> %".268", ptr %".292", align 4
  %".294" = getelementptr inbounds float, ptr %".288", i64 40
  store <8 x float> %".270", ptr %".294", align 4
  %".296" = getelementptr inbounds float, ptr %".288", i64 64
  store <8 x float> %".272", ptr %".296", align 4
  %".298" = getelementptr inbounds float, ptr %".288", i64 72
  store <8 x float> %".274", ptr %".298", align 4
  %".300" = getelementptr inbounds float, ptr %".288", i64 96
  store <8 x float> %".276", ptr %".300", align 4
  %".302" = getelementptr inbounds float, ptr %".288", i64 104
  store <8 x float> %".278", ptr %".302", align 4
  br label %"k.0.either.1"
k.0.is_not.1:
  %".305" = mul nuw nsw i64 %".11", 3
  %".306" = add nuw nsw i64 %"i.1", %".305"
  %".307" = mul nuw nsw i64 %".306", 128
  %".308" = add i64 0, %".307"
  %".309" = mul nuw nsw i64 0, 2
  %".310" = add nuw nsw i64 %"j.1", %".309"
  %".311" = mul nuw nsw i64 %".310", 64
  %".312" = add i64 %".308", %".311"
  %".313" = mul nuw nsw i64 0, 16
  %".314" = add i64 %".312", %".313"
  %".315" = add i64 %".314", 0
  %".316" = getelementptr inbounds float, ptr %"partial", i64 %".315"
  store <8 x float> %".220", ptr %".316", align 4
  %".318" = getelementptr inbounds float, ptr %".316", i64 8
  store <8 x float> %".221", ptr %".318", align 4
  %".320" = getelementptr inbounds float, ptr %".316", i64 16
  store <8 x float> %".226", ptr %".320", align 4
  %".322" = getelementptr inbounds float, ptr %".316", i64 24
  store <8 x float> %".227", ptr %".322", align 4
  %".324" = getelementptr inbounds float, ptr %".316", i64 32
  store <8 x float> %".232", ptr %".324", align 4
  %".326" = getelementptr inbounds float, ptr %".316", i64 40
  store <8 x float> %".233", ptr %".326", align 4
  %".328" = getelementptr inbounds float, ptr %".316", i64 48
  store <8 x float> %".238", ptr %".328", align 4
  %".330" = getelementptr inbounds float, ptr %".316", i64 56
  store <8 x float> %".239", ptr %".330", align 4
  br label %"k.0.either.1"
k.0.either.1:
  %".333" = add nuw nsw i64 %"j.1", 1
  %".334" = icmp slt i64 %".333", 2
  br i1 %".334", label %"j", label %"j.end"
j.end:
  %".336" = add nuw nsw i64 %"i.1", 1
  %".337" = icmp slt i64 %".336", 3
  br i1 %".337", label %"i", label %"i.end"
i.end:
  %".339" = add nuw nsw i64 %"k.0.1", 1
  %".340" = icmp slt i64 %".339", 2
  br i1 %".340", label %"k.0", label %"k.0.end"
k.0.end:
  %".342" = add nuw nsw i64 %"tile.1", 1
  %".343" = icmp slt i64 %".342", %"count"
  br i1 %".343", label %"tile", label %"tile.end"
tile.end:
  ret void
}

declare i64 @"llvm.smin.i64"(i64 %".1", i64 %".2")

declare void @"llvm.masked.store.v8f32.p0"(<8 x float> %".1", ptr %".2", i32 %".3", <8 x i1> %".4")

declare <8 x float> @"llvm.fma.v8f32"(<8 x float> %".1", <8 x float> %".2", <8 x float> %".3")

@"matmul_scratch_bytes" = constant i64 12928