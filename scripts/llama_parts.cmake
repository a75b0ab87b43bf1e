# Read by llama-cpp-python's build right after project(): leaves out what ggbench does not use, two thirds of the compilation.
# Its CMakeLists.txt forces the cache entry of the first; a variable of that name goes before it (CMake policy CMP0126).
set(LLAMA_BUILD_COMMON OFF)  # llama.cpp's tools are linked with it
set(LLAVA_BUILD OFF)         # images and audio; llama_cpp loads that library when it is first asked for
