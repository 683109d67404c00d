; row_whole rows=16x1 vectors=2 prefetch=0 streaming=False
;
; kernel softmax: grid r.0 in 16  [lanes 8, vectors 2]
;   x: (r 1, c 100) float32 = load x[r.0 : +1, 0 : +100]
;   top: (r 1) float32 = max of x over c
;   t: (r 1, c 100) float32 = sub(x, top)
;   total_body: (r 1, c 100) float32 = exp(t)
;   total: (r 1) float32 = sum of total_body over c
;   out: (r 1, c 100) float32 = div(total_body, total)
;   store out[r.0 : +1, 0 : +100] = out

; ModuleID = "softmax"
target triple = "unknown-unknown-unknown"
target datalayout = ""

define void @"softmax"(ptr noalias %"x", ptr noalias %"out", ptr noalias %"scratch", i64 %"first", i64 %"count") "prefer-vector-width"="256" nounwind
{
entry:
  %"top.0" = alloca <8 x float>
  %"top.1" = alloca <8 x float>
  %"top" = alloca float
  %"total.0" = alloca <8 x float>
  %"total.1" = alloca <8 x float>
  %"total" = alloca float
  br label %"tile"
tile:
  %"tile.1" = phi  i64 [0, %"entry"], [%".271", %"r.row.end"]
  %".8" = add i64 %"first", %"tile.1"
  br label %"r.row"
r.row:
  %"r.row.1" = phi  i64 [0, %"tile"], [%".268", %"c.end.5"]
  ; pass over c: x, top
  %".11" = add i64 %".8", %"r.row.1"
  %".12" = mul nuw nsw i64 %".11", 100
  %".13" = add i64 0, %".12"
  %".14" = add i64 %".13", 0
  %".15" = getelementptr inbounds float, ptr %"x", i64 %".14"
  store <8 x float> splat (float 0xFFF0000000000000), <8 x float>* %"top.0"
  store <8 x float> splat (float 0xFFF0000000000000), <8 x float>* %"top.1"
  %".18" = sub i64 96, 0
  br label %"c"
c:
  %"c.1" = phi  i64 [0, %"r.row"], [%".34", %"c"]
  %".20" = add i64 %"c.1", 0
  %".21" = getelementptr inbounds float, ptr %".15", i64 %".20"
  %".22" = load <8 x float>, ptr %".21", align 4
  %".23" = load <8 x float>, <8 x float>* %"top.0"
  %".24" = fcmp ugt <8 x float> %".22", %".23"
  %".25" = select  <8 x i1> %".24", <8 x float> %".22", <8 x float> %".23"
  store <8 x float> %".25", <8 x float>* %"top.0"
  %".27" = add i64 %".20", 8
  %".28" = getelementptr inbounds float, ptr %".15", i64 %".27"
  %".29" = load <8 x float>, ptr %".28", align 4
  %".30" = load <8 x float>, <8 x float>* %"top.1"
  %".31" = fcmp ugt <8 x float> %".29", %".30"
  %".32" = select  <8 x i1> %".31", <8 x float> %".29", <8 x float> %".30"
  store <8 x float> %".32", <8 x float>* %"top.1"
  %".34" = add nuw nsw i64 %"c.1", 16
  %".35" = icmp slt i64 %".34", %".18"
  br i1 %".35", label %"c", label %"c.end"
c.end:
  %".37" = sub i64 100, 96
  br label %"c.2"
c.2:
  %"c.3" = phi  i64 [0, %"c.end"], [%".53", %"c.2"]
  %".39" = add i64 %"c.3", 96
  %".40" = sub i64 100, %".39"
  %".41" = call i64 @"llvm.smin.i64"(i64 %".40", i64 8)
  %".42" = trunc i64 %".41" to i32
  %".43" = insertelement <8 x i32> poison, i32 %".42", i32 0
  %".44" = shufflevector <8 x i32> %".43", <8 x i32> poison, <8 x i32> zeroinitializer
  %".45" = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %".44"
  %".46" = getelementptr inbounds float, ptr %".15", i64 %".39"
  %".47" = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %".46", i32 4, <8 x i1> %".45", <8 x float> <float 0.0, float 0.0, float 0.0, float 0.0, float 0.0, float 0.0, float 0.0, float 0.0>)
  %".48" = load <8 x float>, <8 x float>* %"top.0"
  %".49" = fcmp ugt <8 x float> %".47", %".48"
  %".50" = select  <8 x i1> %".49", <8 x float> %".47", <8 x float> %".48"
  %".51" = select  <8 x i1> %".45", <8 x float> %".50", <8 x float> %".48"
  store <8 x float> %".51", <8 x float>* %"top.0"
  %".53" = add nuw nsw i64 %"c.3", 8
  %".54" = icmp slt i64 %".53", %".37"
  br i1 %".54", label %"c.2", label %"c.end.1"
c.end.1:
  %".56" = load <8 x float>, <8 x float>* %"top.0"
  %".57" = load <8 x float>, <8 x float>* %"top.1"
  %".58" = fcmp ugt <8 x float> %".56", %".57"
  %".59" = select  <8 x i1> %".58", <8 x float> %".56", <8 x float> %".57"
  %".60" = shufflevector <8 x float> %".59", <8 x float> %".59", <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %".61" = shufflevector <8 x float> %".59", <8 x float> %".59", <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %".62" = fcmp ugt <4 x float> %".60", %".61"
  %".63" = select  <4 x i1> %".62", <4 x float> %".60", <4 x float> %".61"
  %".64" = shufflevector <4 x float> %".63", <4 x float> %".63", <2 x i32> <i32 0, i32 1>
  %".65" = shufflevector <4 x float> %".63", <4 x float> %".63", <2 x i32> <i32 2, i32 3>
  %".66" = fcmp ugt <2 x float> %".64", %".65"
  %".67" = select  <2 x i1> %".66", <2 x float> %".64", <2 x float> %".65"
  %".68" = shufflevector <2 x float> %".67", <2 x float> %".67", <1 x i32> <i32 0>
  %".69" = shufflevector <2 x float> %".67", <2 x float> %".67", <1 x i32> <i32 1>
  %".70" = fcmp ugt <1 x float> %".68", %".69"
  %".71" = select  <1 x i1> %".70", <1 x float> %".68", <1 x float> %".69"
  %".72" = extractelement <1 x float> %".71", i64 0
  store float %".72", float* %"top"
  ; pass over c: x, t, total_body, total
  %".75" = getelementptr inbounds i8, ptr %"scratch", i64 0
  %".76" = add i64 %".8", %"r.row.1"
  %".77" = mul nuw nsw i64 %".76", 100
  %".78" = add i64 0, %".77"
  %".79" = add i64 %".78", 0
  %".80" = getelementptr inbounds float, ptr %"x", i64 %".79"
  %".81" = load float, float* %"top"
  %".82" = insertelement <8 x float> poison, float %".81", i32 0
  %".83" = shufflevector <8 x float> %".82", <8 x float> poison, <8 x i32> zeroinitializer
  store <8 x float> splat (float 0x0000000000000000), <8 x float>* %"total.0"
  store <8 x float> splat (float 0x0000000000000000), <8 x float>* %"total.1"
  %".86" = sub i64 96, 0
  br label %"c.4"
c.4:
  %"c.5" = phi  i64 [0, %"c.end.1"], [%".160", %"c.4"]
  %".88" = add i64 %"c.5", 0
  %".89" = getelementptr inbounds float, ptr %".80", i64 %".88"
  %".90" = load <8 x float>, ptr %".89", align 4
  %".91" = fsub contract <8 x float> %".90", %".83"
  %".92" = fcmp olt <8 x float> splat (float 0x4056400000000000), %".91"
  %".93" = select  <8 x i1> %".92", <8 x float> splat (float 0x4056400000000000), <8 x float> %".91"
  %".94" = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %".93"
  %".95" = select  <8 x i1> %".94", <8 x float> splat (float 0xC05A000000000000), <8 x float> %".93"
  %".96" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".95", <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %".97" = fsub <8 x float> %".96", splat (float 0x4168000000000000)
  %".98" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".97", <8 x float> splat (float 0xBFE6300000000000), <8 x float> %".95")
  %".99" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".97", <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %".98")
  %".100" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %".99", <8 x float> splat (float 0x3F812398E0000000))
  %".101" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".100", <8 x float> %".99", <8 x float> splat (float 0x3FA5558B00000000))
  %".102" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".101", <8 x float> %".99", <8 x float> splat (float 0x3FC5554920000000))
  %".103" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".102", <8 x float> %".99", <8 x float> splat (float 0x3FDFFFFFC0000000))
  %".104" = fmul <8 x float> %".99", %".99"
  %".105" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".104", <8 x float> %".103", <8 x float> %".99")
  %".106" = fadd <8 x float> %".105", splat (float 0x3FF0000000000000)
  %".107" = bitcast <8 x float> %".96" to <8 x i32>
  %".108" = sub <8 x i32> %".107", splat (i32 1262485504)
  %".109" = ashr <8 x i32> %".108", splat (i32 1)
  %".110" = sub <8 x i32> %".108", %".109"
  %".111" = add <8 x i32> %".109", splat (i32 127)
  %".112" = shl <8 x i32> %".111", splat (i32 23)
  %".113" = bitcast <8 x i32> %".112" to <8 x float>
  %".114" = fmul <8 x float> %".106", %".113"
  %".115" = add <8 x i32> %".110", splat (i32 127)
  %".116" = shl <8 x i32> %".115", splat (i32 23)
  %".117" = bitcast <8 x i32> %".116" to <8 x float>
  %".118" = fmul <8 x float> %".114", %".117"
  %".119" = getelementptr inbounds float, ptr %".75", i64 %".88"
  store <8 x float> %".118", ptr %".119", align 4
  %".121" = load <8 x float>, <8 x float>* %"total.0"
  %".122" = fadd contract <8 x float> %".118", %".121"
  store <8 x float> %".122", <8 x float>* %"total.0"
  %".124" = add i64 %".88", 8
  %".125" = getelementptr inbounds float, ptr %".80", i64 %".124"
  %".126" = load <8 x float>, ptr %".125", align 4
  %".127" = fsub contract <8 x float> %".126", %".83"
  %".128" = fcmp olt <8 x float> splat (float 0x4056400000000000), %".127"
  %".129" = select  <8 x i1> %".128", <8 x float> splat (float 0x4056400000000000), <8 x float> %".127"
  %".130" = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %".129"
  %".131" = select  <8 x i1> %".130", <8 x float> splat (float 0xC05A000000000000), <8 x float> %".129"
  %".132" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".131", <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %".133" = fsub <8 x float> %".132", splat (float 0x4168000000000000)
  %".134" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".133", <8 x float> splat (float 0xBFE6300000000000), <8 x float> %".131")
  %".135" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".133", <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %".134")
  %".136" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %".135", <8 x float> splat (float 0x3F812398E0000000))
  %".137" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".136", <8 x float> %".135", <8 x float> splat (float 0x3FA5558B00000000))
  %".138" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".137", <8 x float> %".135", <8 x float> splat (float 0x3FC5554920000000))
  %".139" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".138", <8 x float> %".135", <8 x float> splat (float 0x3FDFFFFFC0000000))
  %".140" = fmul <8 x float> %".135", %".135"
  %".141" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".140", <8 x float> %".139", <8 x float> %".135")
  %".142" = fadd <8 x float> %".141", splat (float 0x3FF0000000000000)
  %".143" = bitcast <8 x float> %".132" to <8 x i32>
  %".144" = sub <8 x i32> %".143", splat (i32 1262485504)
  %".145" = ashr <8 x i32> %".144", splat (i32 1)
  %".146" = sub <8 x i32> %".144", %".145"
  %".147" = add <8 x i32> %".145", splat (i32 127)
  %".148" = shl <8 x i32> %".147", splat (i32 23)
  %".149" = bitcast <8 x i32> %".148" to <8 x float>
  %".150" = fmul <8 x float> %".142", %".149"
  %".151" = add <8 x i32> %".146", splat (i32 127)
  %".152" = shl <8 x i32> %".151", splat (i32 23)
  %".153" = bitcast <8 x i32> %".152" to <8 x float>
  %".154" = fmul <8 x float> %".150", %".153"
  %".155" = getelementptr inbounds float, ptr %".75", i64 %".124"
  store <8 x float> %".154", ptr %".155", align 4
  %".157" = load <8 x float>, <8 x float>* %"total.1"
  %".158" = fadd contract <8 x float> %".154", %".157"
  store <8 x float> %".158", <8 x float>* %"total.1"
  %".160" = add nuw nsw i64 %"c.5", 16
  %".161" = icmp slt i64 %".160", %".86"
  br i1 %".161", label %"c.4", label %"c.end.2"
c.end.2:
  %".163" = sub i64 100, 96
  br label %"c.6"
c.6:
  %"c.7" = phi  i64 [0, %"c.end.2"], [%".208", %"c.6"]
  %".165" = add i64 %"c.7", 96
  %".166" = sub i64 100, %".165"
  %".167" = call i64 @"llvm.smin.i64"(i64 %".166", i64 8)
  %".168" = trunc i64 %".167" to i32
  %".169" = insertelement <8 x i32> poison, i32 %".168", i32 0
  %".170" = shufflevector <8 x i32> %".169", <8 x i32> poison, <8 x i32> zeroinitializer
  %".171" = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %".170"
  %".172" = getelementptr inbounds float, ptr %".80", i64 %".165"
  %".173" = call <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %".172", i32 4, <8 x i1> %".171", <8 x float> <float 0.0, float 0.0, float 0.0, float 0.0, float 0.0, float 0.0, float 0.0, float 0.0>)
  %".174" = fsub contract <8 x float> %".173", %".83"
  %".175" = fcmp olt <8 x float> splat (float 0x4056400000000000), %".174"
  %".176" = select  <8 x i1> %".175", <8 x float> splat (float 0x4056400000000000), <8 x float> %".174"
  %".177" = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %".176"
  %".178" = select  <8 x i1> %".177", <8 x float> splat (float 0xC05A000000000000), <8 x float> %".176"
  %".179" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".178", <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %".180" = fsub <8 x float> %".179", splat (float 0x4168000000000000)
  %".181" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".180", <8 x float> splat (float 0xBFE6300000000000), <8 x float> %".178")
  %".182" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".180", <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %".181")
  %".183" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> splat (float 0x3F56A4D600000000), <8 x float> %".182", <8 x float> splat (float 0x3F812398E0000000))
  %".184" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".183", <8 x float> %".182", <8 x float> splat (float 0x3FA5558B00000000))
  %".185" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".184", <8 x float> %".182", <8 x float> splat (float 0x3FC5554920000000))
  %".186" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".185", <8 x float> %".182", <8 x float> splat (float 0x3FDFFFFFC0000000))
  %".187" = fmul <8 x float> %".182", %".182"
  %".188" = call <8 x float> @"llvm.fma.v8f32"(<8 x float> %".187", <8 x float> %".186", <8 x float> %".182")
  %".189" = fadd <8 x float> %".188", splat (float 0x3FF0000000000000)
  %".190" = bitcast <8 x float> %".179" to <8 x i32>
  %".191" = sub <8 x i32> %".190", splat (i32 1262485504)
  %".192" = ashr <8 x i32> %".191", splat (i32 1)
  %".193" = sub <8 x i32> %".191", %".192"
  %".194" = add <8 x i32> %".192", splat (i32 127)
  %".195" = shl <8 x i32> %".194", splat (i32 23)
  %".196" = bitcast <8 x i32> %".195" to <8 x float>
  %".197" = fmul <8 x float> %".189", %".196"
  %".198" = add <8 x i32> %".193", splat (i32 127)
  %".199" = shl <8 x i32> %".198", splat (i32 23)
  %".200" = bitcast <8 x i32> %".199" to <8 x float>
  %".201" = fmul <8 x float> %".197", %".200"
  %".202" = getelementptr inbounds float, ptr %".75", i64 %".165"
  store <8 x float> %".201", ptr %".202", align 4
  %".204" = load <8 x float>, <8 x float>* %"total.0"
  %".205" = fadd contract <8 x float> %".201", %".204"
  %".206" = select  <8 x i1> %".171", <8 x float> %".205", <8 x float> %".204"
  store <8 x float> %".206", <8 x float>* %"total.0"
  %".208" = add nuw nsw i64 %"c.7", 8
  %".209" = icmp slt i64 %".208", %".163"
  br i1 %".209", label %"c.6", label %"c.end.3"
c.end.3:
  %".211" = load <8 x float>, <8 x float>* %"total.0"
  %".212" = load <8 x float>, <8 x float>* %"total.1"
  %".213" = fadd contract <8 x float> %".211", %".212"
  %".214" = shufflevector <8 x float> %".213", <8 x float> %".213", <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %".215" = shufflevector <8 x float> %".213", <8 x float> %".213", <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %".216" = fadd contract <4 x float> %".214", %".215"
  %".217" = shufflevector <4 x float> %".216", <4 x float> %".216", <2 x i32> <i32 0, i32 1>
  %".218" = shufflevector <4 x float> %".216", <4 x float> %".216", <2 x i32> <i32 2, i32 3>
  %".219" = fadd contract <2 x float> %".217", %".218"
  %".220" = shufflevector <2 x float> %".219", <2 x float> %".219", <1 x i32> <i32 0>
  %".221" = shufflevector <2 x float> %".219", <2 x float> %".219", <1 x i32> <i32 1>
  %".222" = fadd contract <1 x float> %".220", %".221"
  %".223" = extractelement <1 x float> %".222", i64 0
  store float %".223", float* %"total"
  ; pass over c: out
  %".226" = load float, float* %"total"
  %".227" = insertelement <8 x float> poison, float %".226", i32 0
  %".228" = shufflevector <8 x float> %".227", <8 x float> poison, <8 x i32> zeroinitializer
  %".229" = add i64 %".8", %"r.row.1"
  %".230" = mul nuw nsw i64 %".229", 100
  %".231" = add i64 0, %".230"
  %".232" = add i64 %".231", 0
  %".233" = getelementptr inbounds float, ptr %"out", i64 %".232"
  %".234" = sub i64 96, 0
  br label %"c.8"
c.8:
  %"c.9" = phi  i64 [0, %"c.end.3"], [%".248", %"c.8"]
  %".236" = add i64 %"c.9", 0
  %".237" = getelementptr inbounds float, ptr %".75", i64 %".236"
  %".238" = load <8 x float>, ptr %".237", align 4
  %".239" = fdiv <8 x float> %".238", %".228"
  %".240" = getelementptr inbounds float, ptr %".233", i64 %".236"
  store <8 x float> %".239", ptr %".240", align 4
  %".242" = add i64 %".236", 8
  %".243" = getelementptr inbounds float, ptr %".75", i64 %".242"
  %".244" = load <8 x float>, ptr %".243", align 4
  %".245" = fdiv <8 x float> %".244", %".228"
  %".246" = getelementptr inbounds float, ptr %".233", i64 %".242"
  store <8 x float> %".245", ptr %".246", align 4
  %".248" = add nuw nsw i64 %"c.9", 16
  %".249" = icmp slt i64 %".248", %".234"
  br i1 %".249", label %"c.8", label %"c.end.4"
c.end.4:
  %".251" = sub i64 100, 96
  br label %"c.10"
c.10:
  %"c.11" = phi  i64 [0, %"c.end.4"], [%".265", %"c.10"]
  %".253" = add i64 %"c.11", 96
  %".254" = sub i64 100, %".253"
  %".255" = call i64 @"llvm.smin.i64"(i64 %".254", i64 8)
  %".256" = trunc i64 %".255" to i32
  %".257" = insertelement <8 x i32> poison, i32 %".256", i32 0
  %".258" = shufflevector <8 x i32> %".257", <8 x i32> poison, <8 x i32> zeroinitializer
  %".259" = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %".258"
  %".260" = getelementptr inbounds float, ptr %".75", i64 %".253"
  %".261" = load <8 x float>, ptr %".260", align 4
  %".262" = fdiv <8 x float> %".261", %".228"
  %".263" = getelementptr inbounds float, ptr %".233", i64 %".253"
  call void @"llvm.masked.store.v8f32.p0"(<8 x float> %".262", ptr %".263", i32 4, <8 x i1> %".259")
  %".265" = add nuw nsw i64 %"c.11", 8
  %".266" = icmp slt i64 %".265", %".251"
  br i1 %".266", label %"c.10", label %"c.end.5"
c.end.5:
  %".268" = add nuw nsw i64 %"r.row.1", 1
  %".269" = icmp slt i64 %".268", 1
  br i1 %".269", label %"r.row", label %"r.row.end"
r.row.end:
  %".271" = add nuw nsw i64 %"tile.1", 1
  %".272" = icmp slt i64 %".271", %"count"
  br i1 %".272", label %"tile", label %"tile.end"
tile.end:
  ret void
}

declare i64 @"llvm.smin.i64"(i64 %".1", i64 %".2")

declare <8 x float> @"llvm.masked.load.v8f32.p0"(ptr %".1", i32 %".2", <8 x i1> %".3", <8 x float> %".4")

declare <8 x float> @"llvm.fma.v8f32"(<8 x float> %".1", <8 x float> %".2", <8 x float> %".3")

declare void @"llvm.masked.store.v8f32.p0"(<8 x float> %".1", ptr %".2", i32 %".3", <8 x i1> %".4")

@"softmax_scratch_bytes" = constant i64 4416