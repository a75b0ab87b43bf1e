-- A results file as ggbench leaves it since searches are kept: as of the version before, with a finished search and a killed one.
PRAGMA application_id = 1734828654;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE prefills (
            id INTEGER PRIMARY KEY,
            run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            repeat INTEGER NOT NULL,
            n_prompt INTEGER NOT NULL,
            prefill_ns INTEGER NOT NULL,
            warmup INTEGER NOT NULL CHECK (warmup IN (0, 1))
        );
INSERT INTO "prefills" VALUES(1,1,0,25,140000000,1);
INSERT INTO "prefills" VALUES(2,1,0,25,130500000,0);
CREATE TABLE probes (
            run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            probe TEXT NOT NULL,
            PRIMARY KEY (run_id, number)
        );
INSERT INTO "probes" VALUES(3,0,'{"n_ctx":24576,"kind":"dry","outcome":"completed","seconds":0.004,"kv_bytes":2415919104,"compute_bytes":315359232,"reason":""}');
INSERT INTO "probes" VALUES(3,1,'{"n_ctx":24832,"kind":"dry","outcome":"out_of_memory","seconds":0.004,"kv_bytes":2441084928,"compute_bytes":315359232,"reason":"weights, cache and compute buffers exceed 3.00 GiB"}');
INSERT INTO "probes" VALUES(3,2,'{"n_ctx":24576,"kind":"alloc","outcome":"completed","seconds":6.8,"kv_bytes":2415919104,"compute_bytes":315359232,"reason":""}');
INSERT INTO "probes" VALUES(3,3,'{"n_ctx":24832,"kind":"alloc","outcome":"out_of_memory","seconds":1.3,"kv_bytes":null,"compute_bytes":null,"reason":"out of memory in context: ggml_aligned_malloc: insufficient memory (attempted to allocate 2328.00 MB)"}');
INSERT INTO "probes" VALUES(3,4,'{"n_ctx":24576,"kind":"decode","outcome":"completed","seconds":54.0,"kv_bytes":2415919104,"compute_bytes":315359232,"reason":""}');
INSERT INTO "probes" VALUES(4,0,'{"n_ctx":24576,"kind":"dry","outcome":"completed","seconds":0.004,"kv_bytes":2415919104,"compute_bytes":315359232,"reason":""}');
INSERT INTO "probes" VALUES(4,1,'{"n_ctx":24832,"kind":"dry","outcome":"out_of_memory","seconds":0.004,"kv_bytes":2441084928,"compute_bytes":315359232,"reason":"weights, cache and compute buffers exceed 3.00 GiB"}');
INSERT INTO "probes" VALUES(4,2,'{"n_ctx":24576,"kind":"alloc","outcome":"completed","seconds":6.8,"kv_bytes":2415919104,"compute_bytes":315359232,"reason":""}');
INSERT INTO "probes" VALUES(4,3,'{"n_ctx":24832,"kind":"alloc","outcome":"out_of_memory","seconds":1.3,"kv_bytes":null,"compute_bytes":null,"reason":"out of memory in context: ggml_aligned_malloc: insufficient memory (attempted to allocate 2328.00 MB)"}');
CREATE TABLE readings (
            id INTEGER PRIMARY KEY,
            run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            at_ns INTEGER NOT NULL,
            reading TEXT NOT NULL
        );
INSERT INTO "readings" VALUES(1,1,1763650801000000000,'{"at_ns":1763650801000000000,"cpu_share":null,"used_bytes":8589934592,"total_bytes":25769803776,"gpus":[{"index":0,"name":"A GPU","uuid":"GPU-1","pci_bus_id":"00000000:01:00.0","sm_clock_mhz":1980,"memory_clock_mhz":null,"temperature_c":65.0,"power_w":300.0,"used_bytes":9663676416,"total_bytes":25769803776,"energy_mj":1000000,"throttle":[],"processes":[{"pid":911,"name":"/usr/bin/desktop","used_bytes":314572800},{"pid":4243,"name":null,"used_bytes":null}]}]}');
INSERT INTO "readings" VALUES(2,1,1763650802000000000,'{"at_ns":1763650802000000000,"cpu_share":0.5,"used_bytes":8589934592,"total_bytes":25769803776,"gpus":[{"index":0,"name":"A GPU","uuid":"GPU-1","pci_bus_id":"00000000:01:00.0","sm_clock_mhz":2001,"memory_clock_mhz":null,"temperature_c":66.0,"power_w":302.5,"used_bytes":9663676416,"total_bytes":25769803776,"energy_mj":1300000,"throttle":["sw_power_cap"],"processes":[{"pid":911,"name":"/usr/bin/desktop","used_bytes":314572800},{"pid":4243,"name":null,"used_bytes":null}]}]}');
INSERT INTO "readings" VALUES(3,2,1763650803000000000,'{"at_ns":1763650803000000000,"cpu_share":null,"used_bytes":8589934592,"total_bytes":25769803776,"gpus":[]}');
CREATE TABLE runs (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            kind TEXT NOT NULL,
            model TEXT NOT NULL,
            quant TEXT NOT NULL,
            file TEXT NOT NULL,
            provenance TEXT NOT NULL,
            file_bytes INTEGER NOT NULL,
            header_sha256 TEXT NOT NULL,
            n_params INTEGER NOT NULL,
            bpw REAL,
            weight_bytes INTEGER,
            kv_bytes_per_token INTEGER,
            command TEXT NOT NULL,
            config TEXT NOT NULL,
            environment TEXT,
            started_at TEXT NOT NULL,
            finished_at TEXT,
            owner_pid INTEGER NOT NULL,
            owner_started_at REAL NOT NULL,
            state TEXT NOT NULL,
            n_samples INTEGER NOT NULL DEFAULT 0,
            outcome_row TEXT
        , certificate TEXT);
INSERT INTO "runs" VALUES(1,'decode','qwen1.5-0.5b','q4_k_m','/models/qwen1.5-0.5b-q4_k_m.gguf','twin',407000000,'abababababababababababababababababababababababababababababababab',619570176,5.18,401000000,98304,'ggbench decode synth:qwen1.5-0.5b q4_k_m -n 300','{"n_ctx":512,"n_batch":2048,"n_ubatch":512,"type_k":"f16","type_v":"f16","flash_attn":"on","n_gpu_layers":-1,"main_gpu":0,"tensor_split":[0.25,0.75],"threads":null,"memory_limit_bytes":3221225472}','{"ggbench":"0.1.0","python":"3.11.2","llama_cpp_python":"0.3.36","llama_cpp":"version: 1","system_info":"AVX512 = 1","os":"Linux","cpu":"EPYC","n_cores":2,"ram_bytes":25769803776,"gpus":[{"index":0,"name":"A GPU","uuid":"GPU-1","pci_bus_id":"0000:01:00.0","total_bytes":25769803776,"free_bytes":24696061952,"bus_width_bits":384,"memory_clock_mhz":null,"driver":"580.1"}]}','2026-11-20T15:00:01+00:00','2026-11-20T15:10:00+00:00',4242,1795000000.25,'completed',4,'{"model":"qwen1.5-0.5b","quant":"q4_k_m","file":"/models/qwen1.5-0.5b-q4_k_m.gguf","provenance":"twin","file_bytes":407000000,"n_params":619570176,"bpw":5.18,"weight_bytes":401000000,"kv_bytes_per_token":98304,"outcome":"completed","reason":"","buffers":[{"device":"CPU","weight_bytes":1,"kv_bytes":2,"compute_bytes":3,"output_bytes":4},{"device":"CUDA0","weight_bytes":5,"kv_bytes":0,"compute_bytes":0,"output_bytes":0}],"kv_bytes":null,"compute_bytes":null,"other_bytes":null,"n_ctx":512,"n_prompt":25,"n_gen":300,"prefill_ms":130.5,"prefills":[],"fit":{"n_samples":300,"w_tokens_per_ms":null,"w_ci95":[1200.0,null],"b_ms":11.0,"b_ci95":[10.9,11.1],"r2":0.03,"robust_w_tokens_per_ms":null},"latency":{"p50_ms":11.0,"p95_ms":12.0,"p99_ms":13.0,"tok_s":90.9,"sample_p50_ms":null},"limit":{"w_tokens_per_ms":250000.0,"b_ms":8.0,"bandwidth_bytes_per_s":24700000000.0,"bandwidth_source":"given"},"unsteady":"","gpu_use":{"indices":[0],"n_readings":2,"temperature_max_c":66.0,"sm_clock_min_mhz":1980,"sm_clock_median_mhz":1990.5,"power_mean_w":301.25,"energy_per_token_mj":5120.5,"throttle":[{"reason":"sw_power_cap","n_readings":1}],"other_processes":[{"pid":911,"name":"/usr/bin/desktop","used_bytes":314572800}]},"flash_attn":true,"config":{"n_ctx":512,"n_batch":2048,"n_ubatch":512,"type_k":"f16","type_v":"f16","flash_attn":"on","n_gpu_layers":-1,"main_gpu":0,"tensor_split":[0.25,0.75],"threads":null,"memory_limit_bytes":3221225472},"run_id":1,"command":"ggbench decode synth:qwen1.5-0.5b q4_k_m -n 300","environment":{"ggbench":"0.1.0","python":"3.11.2","llama_cpp_python":"0.3.36","llama_cpp":"version: 1","system_info":"AVX512 = 1","os":"Linux","cpu":"EPYC","n_cores":2,"ram_bytes":25769803776,"gpus":[{"index":0,"name":"A GPU","uuid":"GPU-1","pci_bus_id":"0000:01:00.0","total_bytes":25769803776,"free_bytes":24696061952,"bus_width_bits":384,"memory_clock_mhz":null,"driver":"580.1"}]}}',NULL);
INSERT INTO "runs" VALUES(2,'bench','qwen1.5-0.5b','q8_0','/models/qwen1.5-0.5b-q4_k_m.gguf','twin',407000000,'abababababababababababababababababababababababababababababababab',619570176,NULL,NULL,NULL,'ggbench decode synth:qwen1.5-0.5b q4_k_m -n 300','{"n_ctx":512,"n_batch":2048,"n_ubatch":512,"type_k":"f16","type_v":"f16","flash_attn":"on","n_gpu_layers":-1,"main_gpu":0,"tensor_split":[0.25,0.75],"threads":null,"memory_limit_bytes":3221225472}',NULL,'2026-11-20T15:00:02+00:00',NULL,4242,1795000000.25,'running',2,NULL,NULL);
INSERT INTO "runs" VALUES(3,'maxctx','qwen1.5-0.5b','q4_k_m','/models/qwen1.5-0.5b-q4_k_m.gguf','twin',407000000,'abababababababababababababababababababababababababababababababab',619570176,5.18,401000000,98304,'ggbench maxctx synth:qwen1.5-0.5b q4_k_m --memory-limit 3221225472 -t 2','{"n_ctx":null,"n_batch":2048,"n_ubatch":512,"type_k":"f16","type_v":"f16","flash_attn":"auto","n_gpu_layers":-1,"main_gpu":null,"tensor_split":[],"threads":2,"memory_limit_bytes":3221225472}',NULL,'2026-11-21T15:00:00+00:00','2026-11-21T15:01:05+00:00',4242,1795000000.25,'completed',0,'{"model":"qwen1.5-0.5b","quant":"q4_k_m","file":"/models/qwen1.5-0.5b-q4_k_m.gguf","provenance":"twin","file_bytes":407000000,"n_params":619570176,"bpw":5.18,"weight_bytes":401000000,"kv_bytes_per_token":98304,"outcome":"completed","reason":"","buffers":[],"kv_bytes":2415919104,"compute_bytes":null,"peak_bytes":null,"other_bytes":null,"n_ctx":24576,"n_batch":null,"n_ubatch":null,"max_n_ctx":24576,"max_n_ctx_verified":true,"max_n_ctx_reason":"","n_prompt":null,"n_gen":null,"prefill_ms":null,"prefills":[],"fit":null,"latency":null,"limit":null,"unsteady":"","gpu_use":null,"flash_attn":null,"config":{"n_ctx":null,"n_batch":2048,"n_ubatch":512,"type_k":"f16","type_v":"f16","flash_attn":"auto","n_gpu_layers":-1,"main_gpu":null,"tensor_split":[],"threads":2,"memory_limit_bytes":3221225472},"run_id":3,"header_sha256":"","command":"ggbench maxctx synth:qwen1.5-0.5b q4_k_m --memory-limit 3221225472 -t 2","environment":null}','{"model":"qwen1.5-0.5b","quant":"q4_k_m","file":"/models/qwen1.5-0.5b-q4_k_m.gguf","provenance":"twin","file_bytes":407000000,"n_params":619570176,"bpw":5.18,"weight_bytes":401000000,"kv_bytes_per_token":98304,"n_ctx_train":32768,"outcome":"completed","reason":"","max_n_ctx":24576,"first_fail_n_ctx":24832,"planned_n_ctx":24576,"theory_n_ctx":27904,"ceiling_n_ctx":2147483392,"verified_by_decode":true,"probes":[{"n_ctx":24576,"kind":"dry","outcome":"completed","seconds":0.004,"kv_bytes":2415919104,"compute_bytes":315359232,"reason":""},{"n_ctx":24832,"kind":"dry","outcome":"out_of_memory","seconds":0.004,"kv_bytes":2441084928,"compute_bytes":315359232,"reason":"weights, cache and compute buffers exceed 3.00 GiB"},{"n_ctx":24576,"kind":"alloc","outcome":"completed","seconds":6.8,"kv_bytes":2415919104,"compute_bytes":315359232,"reason":""},{"n_ctx":24832,"kind":"alloc","outcome":"out_of_memory","seconds":1.3,"kv_bytes":null,"compute_bytes":null,"reason":"out of memory in context: ggml_aligned_malloc: insufficient memory (attempted to allocate 2328.00 MB)"},{"n_ctx":24576,"kind":"decode","outcome":"completed","seconds":54.0,"kv_bytes":2415919104,"compute_bytes":315359232,"reason":""}],"budget_bytes":3221225472,"reserve_bytes":0,"free_bytes":21474836480,"buffers":[{"device":"CPU","weight_bytes":401211392,"kv_bytes":2415919104,"compute_bytes":315359232,"output_bytes":608174}],"kv_bytes":2415919104,"compute_bytes":315359232,"peak_bytes":3200000000,"other_bytes":66902098,"gpu_processes":[{"pid":911,"name":"/usr/bin/desktop","used_bytes":314572800}],"flash_attn":true,"warnings":["a warning"],"config":{"n_ctx":null,"n_batch":2048,"n_ubatch":512,"type_k":"f16","type_v":"f16","flash_attn":"auto","n_gpu_layers":-1,"main_gpu":null,"tensor_split":[],"threads":2,"memory_limit_bytes":3221225472},"environment":null,"run_id":3,"command":"ggbench maxctx synth:qwen1.5-0.5b q4_k_m --memory-limit 3221225472 -t 2"}');
INSERT INTO "runs" VALUES(4,'maxctx','qwen1.5-0.5b','q4_k_m','/models/qwen1.5-0.5b-q4_k_m.gguf','twin',407000000,'abababababababababababababababababababababababababababababababab',619570176,5.18,401000000,98304,'ggbench maxctx synth:qwen1.5-0.5b q4_k_m --memory-limit 3221225472 -t 2','{"n_ctx":null,"n_batch":2048,"n_ubatch":512,"type_k":"f16","type_v":"f16","flash_attn":"auto","n_gpu_layers":-1,"main_gpu":null,"tensor_split":[],"threads":2,"memory_limit_bytes":3221225472}',NULL,'2026-11-21T15:02:00+00:00',NULL,4242,1795000000.25,'running',0,NULL,NULL);
CREATE TABLE sample_chunks (
            run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            phase TEXT NOT NULL CHECK (phase IN ('warmup', 'decode')),
            repeat INTEGER NOT NULL,
            first_position INTEGER NOT NULL,
            step_ns BLOB NOT NULL CHECK (length(step_ns) % 8 = 0),
            sample_ns BLOB CHECK (length(sample_ns) = length(step_ns)),
            PRIMARY KEY (run_id, phase, repeat, first_position)
        );
INSERT INTO "sample_chunks" VALUES(1,'warmup',0,26,X'84030000000000008503000000000000',X'09000000000000000900000000000000');
INSERT INTO "sample_chunks" VALUES(1,'decode',0,26,X'C0D8A70000000000C1D8A70000000000C2D8A70000000000',X'320000000000000033000000000000003400000000000000');
INSERT INTO "sample_chunks" VALUES(1,'decode',1,26,X'0000000000010000',X'3500000000000000');
INSERT INTO "sample_chunks" VALUES(2,'decode',0,26,X'001BB70000000000011BB70000000000',NULL);
CREATE INDEX runs_by_model ON runs (model);
CREATE INDEX runs_running ON runs (id) WHERE state = 'running';
CREATE INDEX prefills_by_run ON prefills (run_id);
CREATE INDEX readings_by_run ON readings (run_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runs',4);
COMMIT;
