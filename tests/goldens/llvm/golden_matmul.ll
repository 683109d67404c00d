; tiled_dot_cpu register=4x16 m=4 n=1x2 k=2x32 pack_a=rows pack_b=panels order=mn inner=ij unroll=2 prefetch_b=8
;
; kernel matmul: grid m.0 in 4, n.0 in 1  [lanes 8, vectors 1]
;   for k.0 in 2:
;     a: (m 12, k 32) float32 = load a[m.0*12 : +12, k.0*32 : +32]  (packed in padded rows, panels of 4 along m)
;     for n.1 in 2:  # while n.0*32 + n.1*16 < 32
;       b: (k 32, n 16) float32 = load b[k.0*32 : +32, n.0*32 + n.1*16 : +16]  (packed in panels of 16 along n)
;       for i in 3:  # while i*4 + m.0*12 < 48
;         for j in 1:  # while j*16 + n.0*32 + n.1*16 < 32
;           c: (m 4, n 16) float32 = 0
;           a_panel: (m 4, k 32) float32 = a[i*4 : +4, 0 : +32]
;           b_panel: (k 32, n 16) float32 = b[0 : +32, j*16 : +16]
;           prefetch out[i*4 + m.0*12 : +4, j*16 + n.0*32 + n.1*16 : +16]
;           c += dot(a_panel, b_panel) over k  (unrolled 2, b_panel prefetched 8 ahead)
;           if k.0 == 0:
;           else:
;             before: (m 4, n 16) float32 = load out[i*4 + m.0*12 : +4, j*16 + n.0*32 + n.1*16 : +16]
;             c: (m 4, n 16) float32 = add(c, before)
;           if k.0 == 1:
;             bias: (n 16) float32 = load bias[j*16 + n.0*32 + n.1*16 : +16]
;             t: (m 4, n 16) float32 = add(c, bias)
;             out: (m 4, n 16) float32 = maximum(t, 0)
;             store out[i*4 + m.0*12 : +4, j*16 + n.0*32 + n.1*16 : +16] = out
;           else:
;             store out[i*4 + m.0*12 : +4, j*16 + n.0*32 + n.1*16 : +16] = c

; ModuleID = "matmul"
target triple = "unknown-unknown-unknown"
target datalayout = ""

define void @"matmul"(ptr noalias %"a", ptr noalias %"b", ptr noalias %"bias", ptr noalias %"out", ptr noalias %"scratch", i64 %"first", i64 %"count") "prefer-vector-width"="256" nounwind
{
entry:
  br label %"tile"
tile:
  %"tile.1" = phi  i64 [0, %"entry"], [%".350", %"k.0.end"]
  %".10" = add i64 %"first", %"tile.1"
  br label %"k.0"
k.0:
  %"k.0.1" = phi  i64 [0, %"tile"], [%".347", %"n.1.end"]
  %".12" = getelementptr inbounds i8, ptr %"scratch", i64 0
  ; pack a in padded rows of 4 along m
  br label %"a.panel"
a.panel:
  %"a.panel.1" = phi  i64 [0, %"k.0"], [%".53", %"pack.k.end"]
  %".15" = mul nuw nsw i64 %".10", 12
  %".16" = add nuw nsw i64 %"a.panel.1", %".15"
  %".17" = call i64 @"llvm.smin.i64"(i64 %".16", i64 44)
  %".18" = mul nuw nsw i64 %".17", 64
  %".19" = add i64 0, %".18"
  %".20" = mul nuw nsw i64 %"k.0.1", 32
  %".21" = add i64 %".19", %".20"
  %".22" = getelementptr inbounds float, ptr %"a", i64 %".21"
  %".23" = mul nuw nsw i64 %"a.panel.1", 48
  %".24" = getelementptr inbounds float, ptr %".12", i64 %".23"
  br label %"pack.k"
pack.k:
  %"pack.k.1" = phi  i64 [0, %"a.panel"], [%".50", %"pack.k"]
  %".26" = add i64 %"pack.k.1", 0
  %".27" = getelementptr inbounds float, ptr %".22", i64 %".26"
  %".28" = load <8 x float>, ptr %".27", align 4
  %".29" = add i64 %"pack.k.1", 64
  %".30" = getelementptr inbounds float, ptr %".22", i64 %".29"
  %".31" = load <8 x float>, ptr %".30", align 4
  %".32" = add i64 %"pack.k.1", 128
  %".33" = getelementptr inbounds float, ptr %".22", i64 %".32"
  %".34" = load <8 x float>, ptr %".33", align 4
  %".35" = add i64 %"pack.k.1", 192
  %".36" = getelementptr inbounds float, ptr %".22", i64 %".35"
  %".37" = load <8 x float>, ptr %".36", align 4
  %".38" = add i64 %"pack.k.1", 0
  %".39" = getelementptr inbounds float, ptr %".24", i64 %".38"
  store <8 x float> %".28", ptr %".39", align 4
  %".41" = add i64 %"pack.k.1", 48
  %".42" = getelementptr inbounds float, ptr %".24", i64 %".41"
  store <8 x float> %".31", ptr %".42", align 4
  %".44" = add i64 %"pack.k.1", 96
  %".45" = getelementptr inbounds float, ptr %".24", i64 %".44"
  store <8 x float> %".34", ptr %".45", align 4
  %".47" = add i64 %"pack.k.1", 144
  %".48" = getelementptr inbounds float, ptr %".24", i64 %".47"
  store <8 x float> %".37", ptr %".48", align 4
  %".50" = add nuw nsw i64 %"pack.k.1", 8
  %".51" = icmp slt i64 %".50", 32
  br i1 %".51", label %"pack.k", label %"pack.k.end"
pack.k.end:
  %".53" = add nuw nsw i64 %"a.panel.1", 4
  %".54" = icmp slt i64 %".53", 12
  br i1 %".54", label %"a.panel", label %"a.panel.end"
a.panel.end:
  br label %"n.1"
n.1:
  %"n.1.1" = phi  i64 [0, %"a.panel.end"], [%".344", %"i.end"]
  %".57" = getelementptr inbounds i8, ptr %"scratch", i64 4416
  ; pack b in panels of 16 along n
  br label %"pack.k.2"
pack.k.2:
  %"pack.k.3" = phi  i64 [0, %"n.1"], [%".86", %"b.panel.end"]
  br label %"b.panel"
b.panel:
  %"b.panel.1" = phi  i64 [0, %"pack.k.2"], [%".83", %"b.panel"]
  %".61" = mul nuw nsw i64 %"k.0.1", 32
  %".62" = mul nuw nsw i64 %".61", 32
  %".63" = add i64 0, %".62"
  %".64" = mul nuw nsw i64 0, 32
  %".65" = add nuw nsw i64 %"b.panel.1", %".64"
  %".66" = mul nuw nsw i64 %"n.1.1", 16
  %".67" = add nuw nsw i64 %".65", %".66"
  %".68" = call i64 @"llvm.smin.i64"(i64 %".67", i64 16)
  %".69" = add i64 %".63", %".68"
  %".70" = getelementptr inbounds float, ptr %"b", i64 %".69"
  %".71" = mul nuw nsw i64 %"b.panel.1", 32
  %".72" = getelementptr inbounds float, ptr %".57", i64 %".71"
  %".73" = mul nuw nsw i64 %"pack.k.3", 32
  %".74" = getelementptr inbounds float, ptr %".70", i64 %".73"
  %".75" = mul nuw nsw i64 %"pack.k.3", 16
  %".76" = getelementptr inbounds float, ptr %".72", i64 %".75"
  %".77" = load <8 x float>, ptr %".74", align 4
  store <8 x float> %".77", ptr %".76", align 4
  %".79" = getelementptr inbounds float, ptr %".74", i64 8
  %".80" = load <8 x float>, ptr %".79", align 4
  %".81" = getelementptr inbounds float, ptr %".76", i64 8
  store <8 x float> %".80", ptr %".81", align 4
  %".83" = add nuw nsw i64 %"b.panel.1", 16
  %".84" = icmp slt i64 %".83", 16
  br i1 %".84", label %"b.panel", label %"b.panel.end"
b.panel.end:
  %".86" = add nuw nsw i64 %"pack.k.3", 1
  %".87" = icmp slt i64 %".86", 32
  br i1 %".87", label %"pack.k.2", label %"pack.k.end.1"
pack.k.end.1:
  br label %"i"
i:
  %"i.1" = phi  i64 [0, %"pack.k.end.1"], [%".341", %"j.end"]
  br label %"j"
j:
  %"j.1" = phi  i64 [0, %"i"], [%".338", %"k.0.either.1"]
  %".91" = mul nuw nsw i64 %"i.1", 192
  %".92" = getelementptr inbounds float, ptr %".12", i64 %".91"
  %".93" = mul nuw nsw i64 %"j.1", 512
  %".94" = getelementptr inbounds float, ptr %".57", i64 %".93"
  %".95" = mul nuw nsw i64 %"i.1", 4
  %".96" = mul nuw nsw i64 %".10", 12
  %".97" = add nuw nsw i64 %".95", %".96"
  %".98" = mul nuw nsw i64 %".97", 32
  %".99" = add i64 0, %".98"
  %".100" = mul nuw nsw i64 %"j.1", 16
  %".101" = mul nuw nsw i64 0, 32
  %".102" = add nuw nsw i64 %".100", %".101"
  %".103" = mul nuw nsw i64 %"n.1.1", 16
  %".104" = add nuw nsw i64 %".102", %".103"
  %".105" = add i64 %".99", %".104"
  %".106" = getelementptr inbounds float, ptr %"out", i64 %".105"
  call void @"llvm.prefetch.p0"(ptr %".106", i32 1, i32 3, i32 1)
  %".108" = getelementptr inbounds float, ptr %".106", i64 8
  call void @"llvm.prefetch.p0"(ptr %".108", i32 1, i32 3, i32 1)
  %".110" = getelementptr inbounds float, ptr %".106", i64 32
  call void @"llvm.prefetch.p0"(ptr %".110", i32 1, i32 3, i32 1)
  %".112" = getelementptr inbounds float, ptr %".106", i64 40
  call void @"llvm.prefetch.p0"(ptr %".112", i32 1, i32 3, i32 1)
  %".114" = getelementptr inbounds float, ptr %".106", i64 64
  call void @"llvm.prefetch.p0"(ptr %".114", i32 1, i32 3, i32 1)
  %".116" = getelementptr inbounds float, ptr %".106", i64 72
  call void @"llvm.prefetch.p0"(ptr %".116", i32 1, i32 3, i32 1)
  %".118" = getelementptr inbounds float, ptr %".106", i64 96
  call void @"llvm.prefetch.p0"(ptr %".118", i32 1, i32 3, i32 1)
  %".120" = getelementptr inbounds float, ptr %".106", i64 104
  call void @"llvm.prefetch.p0"(ptr %".120", i32 1, i32 3, i32 1)
  ; c += a_panel . b_panel: 4 x 16 in registers, 2 steps a turn
  br label %"k"
k:
  %"left" = phi  i64 [32, %"j"], [%".196", %"k"]
  %"a.at" = phi  ptr [%".92", %"j"], [%".194", %"k"]
  %"b.at" = phi  ptr [%".94", %"j"], [%".195", %"k"]
  %".124" = phi  <8 x float> [splat (float 0x0000000000000000), %"j"], [%".174", %"k"]
  %".125" = phi  <8 x float> [splat (float 0x0000000000000000), %"j"], [%".175", %"k"]
  %".126" = phi  <8 x float> [splat (float 0x0000000000000000), %"j"], [%".180", %"k"]
  %".127" = phi  <8 x float> [splat (float 0x0000000000000000), %"j"], [%".181", %"k"]
  %".128" = phi  <8 x float> [splat (float 0x0000000000000000), %"j"], [%".186", %"k"]
  %".129" = phi  <8 x float> [splat (float 0x0000000000000000), %"j"], [%".187", %"k"]
  %".130" = phi  <8 x float> [splat (float 0x0000000000000000), %"j"], [%".192", %"k"]
  %".131" = phi  <8 x float> [splat (float 0x0000000000000000), %"j"], [%".193", %"k"]
  %".132" = getelementptr inbounds float, ptr %"b.at", i64 128
  call void @"llvm.prefetch.p0"(ptr %".132", i32 0, i32 3, i32 1)
  %".134" = getelementptr inbounds float, ptr %"b.at", i64 136
  call void @"llvm.prefetch.p0"(ptr %".134", i32 0, i32 3, i32 1)
  %".136" = load <8 x float>, ptr %"b.at", align 4
  %".137" = getelementptr inbounds float, ptr %"b.at", i64 8
  %".138" = load <8 x float>, ptr %".137", align 4
  %".139" = load float, ptr %"a.at", align 4
  %".140" = insertelement <8 x float> poison, float %".139", i32 0
  %".141" = shufflevector <8 x float> %".140", <8 x float> poison, <8 x i32> zeroinitializer
  %".142" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".141", <8 x float> %".136", <8 x float> %".124")
  %".143" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".141", <8 x float> %".138", <8 x float> %".125")
  %".144" = getelementptr inbounds float, ptr %"a.at", i64 48
  %".145" = load float, ptr %".144", align 4
  %".146" = insertelement <8 x float> poison, float %".145", i32 0
  %".147" = shufflevector <8 x float> %".146", <8 x float> poison, <8 x i32> zeroinitializer
  %".148" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".147", <8 x float> %".136", <8 x float> %".126")
  %".149" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".147", <8 x float> %".138", <8 x float> %".127")
  %".150" = getelementptr inbounds float, ptr %"a.at", i64 96
  %".151" = load float, ptr %".150", align 4
  %".152" = insertelement <8 x float> poison, float %".151", i32 0
  %".153" = shufflevector <8 x float> %".152", <8 x float> poison, <8 x i32> zeroinitializer
  %".154" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".153", <8 x float> %".136", <8 x float> %".128")
  %".155" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".153", <8 x float> %".138", <8 x float> %".129")
  %".156" = getelementptr inbounds float, ptr %"a.at", i64 144
  %".157" = load float, ptr %".156", align 4
  %".158" = insertelement <8 x float> poison, float %".157", i32 0
  %".159" = shufflevector <8 x float> %".158", <8 x float> poison, <8 x i32> zeroinitializer
  %".160" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".159", <8 x float> %".136", <8 x float> %".130")
  %".161" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".159", <8 x float> %".138", <8 x float> %".131")
  %".162" = getelementptr inbounds float, ptr %"b.at", i64 144
  call void @"llvm.prefetch.p0"(ptr %".162", i32 0, i32 3, i32 1)
  %".164" = getelementptr inbounds float, ptr %"b.at", i64 152
  call void @"llvm.prefetch.p0"(ptr %".164", i32 0, i32 3, i32 1)
  %".166" = getelementptr inbounds float, ptr %"b.at", i64 16
  %".167" = load <8 x float>, ptr %".166", align 4
  %".168" = getelementptr inbounds float, ptr %"b.at", i64 24
  %".169" = load <8 x float>, ptr %".168", align 4
  %".170" = getelementptr inbounds float, ptr %"a.at", i64 1
  %".171" = load float, ptr %".170", align 4
  %".172" = insertelement <8 x float> poison, float %".171", i32 0
  %".173" = shufflevector <8 x float> %".172", <8 x float> poison, <8 x i32> zeroinitializer
  %".174" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".173", <8 x float> %".167", <8 x float> %".142")
  %".175" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".173", <8 x float> %".169", <8 x float> %".143")
  %".176" = getelementptr inbounds float, ptr %"a.at", i64 49
  %".177" = load float, ptr %".176", align 4
  %".178" = insertelement <8 x float> poison, float %".177", i32 0
  %".179" = shufflevector <8 x float> %".178", <8 x float> poison, <8 x i32> zeroinitializer
  %".180" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".179", <8 x float> %".167", <8 x float> %".148")
  %".181" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".179", <8 x float> %".169", <8 x float> %".149")
  %".182" = getelementptr inbounds float, ptr %"a.at", i64 97
  %".183" = load float, ptr %".182", align 4
  %".184" = insertelement <8 x float> poison, float %".183", i32 0
  %".185" = shufflevector <8 x float> %".184", <8 x float> poison, <8 x i32> zeroinitializer
  %".186" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".185", <8 x float> %".167", <8 x float> %".154")
  %".187" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".185", <8 x float> %".169", <8 x float> %".155")
  %".188" = getelementptr inbounds float, ptr %"a.at", i64 145
  %".189" = load float, ptr %".188", align 4
  %".190" = insertelement <8 x float> poison, float %".189", i32 0
  %".191" = shufflevector <8 x float> %".190", <8 x float> poison, <8 x i32> zeroinitializer
  %".192" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".191", <8 x float> %".167", <8 x float> %".160")
  %".193" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".191", <8 x float> %".169", <8 x float> %".161")
  %".194" = getelementptr inbounds float, ptr %"a.at", i64 2
  %".195" = getelementptr inbounds float, ptr %"b.at", i64 32
  %".196" = sub i64 %"left", 2
  %".197" = icmp sgt i64 %".196", 0
  br i1 %".197", label %"k", label %"k.end"
k.end:
  %".199" = icmp eq i64 %"k.0.1", 0
  br i1 %".199", label %"k.0.is", label %"k.0.is_not"
k.0.is:
  br label %"k.0.either"
k.0.is_not:
  %".202" = mul nuw nsw i64 %"i.1", 4
  %".203" = mul nuw nsw i64 %".10", 12
  %".204" = add nuw nsw i64 %".202", %".203"
  %".205" = mul nuw nsw i64 %".204", 32
  %".206" = add i64 0, %".205"
  %".207" = mul nuw nsw i64 %"j.1", 16
  %".208" = mul nuw nsw i64 0, 32
  %".209" = add nuw nsw i64 %".207", %".208"
  %".210" = mul nuw nsw i64 %"n.1.1", 16
  %".211" = add nuw nsw i64 %".209", %".210"
  %".212" = add i64 %".206", %".211"
  %".213" = getelementptr inbounds float, ptr %"out", i64 %".212"
  %".214" = load <8 x float>, ptr %".213", align 4
  %".215" = getelementptr inbounds float, ptr %".213", i64 8
  %".216" = load <8 x float>, ptr %".215", align 4
  %".217" = getelementptr inbounds float, ptr %".213", i64 32
  %".218" = load <8 x float>, ptr %".217", align 4
  %".219" = getelementptr inbounds float, ptr %".213", i64 40
  %".220" = load <8 x float>, ptr %".219", align 4
  %".221" = getelementptr inbounds float, ptr %".213", i64 64
  %".222" = load <8 x float>, ptr %".221", align 4
  %".223" = getelementptr inbounds float, ptr %".213", i64 72
  %".224" = load <8 x float>, ptr %".223", align 4
  %".225" = getelementptr inbounds float, ptr %".213", i64 96
  %".226" = load <8 x float>, ptr %".225", align 4
  %".227" = getelementptr inbounds float, ptr %".213", i64 104
  %".228" = load <8 x float>, ptr %".227", align 4
  %".229" = fadd contract <8 x float> %".174", %".214"
  %".230" = fadd contract <8 x float> %".175", %".216"
  %".231" = fadd contract <8 x float> %".180", %".218"
  %".232" = fadd contract <8 x float> %".181", %".220"
  %".233" = fadd contract <8 x float> %".186", %".222"
  %".234" = fadd contract <8 x float> %".187", %".224"
  %".235" = fadd contract <8 x float> %".192", %".226"
  %".236" = fadd contract <8 x float> %".193", %".228"
  br label %"k.0.either"
k.0.either:
  %".238" = phi  <8 x float> [%".174", %"k.0.is"], [%".229", %"k.0.is_not"]
  %".239" = phi  <8 x float> [%".175", %"k.0.is"], [%".230", %"k.0.is_not"]
  %".240" = phi  <8 x float> [%".180", %"k.0.is"], [%".231", %"k.0.is_not"]
  %".241" = phi  <8 x float> [%".181", %"k.0.is"], [%".232", %"k.0.is_not"]
  %".242" = phi  <8 x float> [%".186", %"k.0.is"], [%".233", %"k.0.is_not"]
  %".243" = phi  <8 x float> [%".187", %"k.0.is"], [%".234", %"k.0.is_not"]
  %".244" = phi  <8 x float> [%".192", %"k.0.is"], [%".235", %"k.0.is_not"]
  %".245" = phi  <8 x float> [%".193", %"k.0.is"], [%".236", %"k.0.is_not"]
  %".246" = icmp eq i64 %"k.0.1", 1
  br i1 %".246", label %"k.0.is.1", label %"k.0.is_not.1"
k.0.is.1:
  %".248" = mul nuw nsw i64 %"j.1", 16
  %".249" = mul nuw nsw i64 0, 32
  %".250" = add nuw nsw i64 %".248", %".249"
  %".251" = mul nuw nsw i64 %"n.1.1", 16
  %".252" = add nuw nsw i64 %".250", %".251"
  %".253" = add i64 0, %".252"
  %".254" = getelementptr inbounds float, ptr %"bias", i64 %".253"
  %".255" = load <8 x float>, ptr %".254", align 4
  %".256" = getelementptr inbounds float, ptr %".254", i64 8
  %".257" = load <8 x float>, ptr %".256", align 4
  %".258" = fadd contract <8 x float> %".238", %".255"
  %".259" = fadd contract <8 x float> %".239", %".257"
  %".260" = fadd contract <8 x float> %".240", %".255"
  %".261" = fadd contract <8 x float> %".241", %".257"
  %".262" = fadd contract <8 x float> %".242", %".255"
  %".263" = fadd contract <8 x float> %".243", %".257"
  %".264" = fadd contract <8 x float> %".244", %".255"
  %".265" = fadd contract <8 x float> %".245", %".257"
  %".266" = fcmp ugt <8 x float> %".258", splat (float 0x0000000000000000)
  %".267" = select  <8 x i1> %".266", <8 x float> %".258", <8 x float> splat (float 0x0000000000000000)
  %".268" = fcmp ugt <8 x float> %".259", splat (float 0x0000000000000000)
  %".269" = select  <8 x i1> %".268", <8 x float> %".259", <8 x float> splat (float 0x0000000000000000)
  %".270" = fcmp ugt <8 x float> %".260", splat (float 0x0000000000000000)
  %".271" = select  <8 x i1> %".270", <8 x float> %".260", <8 x float> splat (float 0x0000000000000000)
  %".272" = fcmp ugt <8 x float> %".261", splat (float 0x0000000000000000)
  %".273" = select  <8 x i1> %".272", <8 x float> %".261", <8 x float> splat (float 0x0000000000000000)
  %".274" = fcmp ugt <8 x float> %".262", splat (float 0x0000000000000000)
  %".275" = select  <8 x i1> %".274", <8 x float> %".262", <8 x float> splat (float 0x0000000000000000)
  %".276" = fcmp ugt <8 x float> %".263", splat (float 0x0000000000000000)
  %".277" = select  <8 x i1> %".276", <8 x float> %".263", <8 x float> splat (float 0x0000000000000000)
  %".278" = fcmp ugt <8 x float> %".264", splat (float 0x0000000000000000)
  %".279" = select  <8 x i1> %".278", <8 x float> %".264", <8 x float> splat (float 0x0000000000000000)
  %".280" = fcmp ugt <8 x float> %".265", splat (float 0x0000000000000000)
  %".281" = select  <8 x i1> %".280", <8 x float> %".265", <8 x float> splat (float 0x0000000000000000)
  %".282" = mul nuw nsw i64 %"i.1", 4
  %".283" = mul nuw nsw i64 %".10", 12
  %".284" = add nuw nsw i64 %".282", %".283"
  %".285" = mul nuw nsw i64 %".284", 32
  %".286" = add i64 0, %".285"
  %".287" = mul nuw nsw i64 %"j.1", 16
  %".288" = mul nuw nsw i64 0, 32
  %".289" = add nuw nsw i64 %".287", %".288"
  %".290" = mul nuw nsw i64 %"n.1.1", 16
  %".291" = add nuw nsw i64 %".289", %".290"
  %".292" = add i64 %".286", %".291"
  %".293" = getelementptr inbounds float, ptr %"out", i64 %".292"
  store <8 x float> %".267", ptr %".293", align 4
  %".295" = getelementptr inbounds float, ptr %".293", i64 8
  store <8 x float> %".269", ptr %".295", align 4
  %".297" = getelementptr inbounds float, ptr %".293", i64 32
  store <8 x float> %".271", ptr %".297", align 4
  %".299" = getelementptr inbounds float, ptr %".293", i64 40
  store <8 x float> %".273", ptr %".299", align 4
  %".301" = getelementptr inbounds float, ptr %".293", i64 64
  store <8 x float> %".275", ptr %".301", align 4
  %".303" = getelementptr inbounds float, ptr %".293", i64 72
  store <8 x float> %".277", ptr %".303", align 4
  %".305" = getelementptr inbounds float, ptr %".293", i64 96
  store <8 x float> %".279", ptr %".305", align 4
  %".307" = getelementptr inbounds float, ptr %".293", i64 104
  store <8 x float> %".281", ptr %".307", align 4
  br label %"k.0.either.1"
k.0.is_not.1:
  %".310" = mul nuw nsw i64 %"i.1", 4
  %".311" = mul nuw nsw i64 %".10", 12
  %".312" = add nuw nsw i64 %".310", %".311"
  %".313" = mul nuw nsw i64 %".312", 32
  %".314" = add i64 0, %".313"
  %".315" = mul nuw nsw i64 %"j.1", 16
  %".316" = mul nuw nsw i64 0, 32
  %".317" = add nuw nsw i64 %".315", %".316"
  %".318" = mul nuw nsw i64 %"n.1.1", 16
  %".319" = add nuw nsw i64 %".317", %".318"
  %".320" = add i64 %".314", %".319"
  %".321" = getelementptr inbounds float, ptr %"out", i64 %".320"
  store <8 x float> %".238", ptr %".321", align 4
  %".323" = getelementptr inbounds float, ptr %".321", i64 8
  store <8 x float> %".239", ptr %".323", align 4
  %".325" = getelementptr inbounds float, ptr %".321", i64 32
  store <8 x float> %".240", ptr %".325", align 4
  %".327" = getelementptr inbounds float, ptr %".321", i64 40
  store <8 x float> %".241", ptr %".327", align 4
  %".329" = getelementptr inbounds float, ptr %".321", i64 64
  store <8 x float> %".242", ptr %".329", align 4
  %".331" = getelementptr inbounds float, ptr %".321", i64 72
  store <8 x float> %".243", ptr %".331", align 4
  %".333" = getelementptr inbounds float, ptr %".321", i64 96
  store <8 x float> %".244", ptr %".333", align 4
  %".335" = getelementptr inbounds float, ptr %".321", i64 104
  store <8 x float> %".245", ptr %".335", align 4
  br label %"k.0.either.1"
k.0.either.1:
  %".338" = add nuw nsw i64 %"j.1", 1
  %".339" = icmp slt i64 %".338", 1
  br i1 %".339", label %"j", label %"j.end"
j.end:
  %".341" = add nuw nsw i64 %"i.1", 1
  %".342" = icmp slt i64 %".341", 3
  br i1 %".342", label %"i", label %"i.end"
i.end:
  %".344" = add nuw nsw i64 %"n.1.1", 1
  %".345" = icmp slt i64 %".344", 2
  br i1 %".345", label %"n.1", label %"n.1.end"
n.1.end:
  %".347" = add nuw nsw i64 %"k.0.1", 1
  %".348" = icmp slt i64 %".347", 2
  br i1 %".348", label %"k.0", label %"k.0.end"
k.0.end:
  %".350" = add nuw nsw i64 %"tile.1", 1
  %".351" = icmp slt i64 %".350", %"count"
  br i1 %".351", label %"tile", label %"tile.end"
tile.end:
  ret void
}

declare i64 @"llvm.smin.i64"(i64 %".1", i64 %".2")

declare void @"llvm.prefetch.p0"(ptr %".1", i32 %".2", i32 %".3", i32 %".4")

declare <8 x float> @"llvm.fma.v8f32"(<8 x float> %".1", <8 x float> %".2", <8 x float> %".3")

@"matmul_scratch_bytes" = constant i64 8832