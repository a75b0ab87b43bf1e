# Read by scripts/setup and scripts/vulkan_check: which GPU is here, and what llama.cpp's build for it needs.
# Sources of options and tools: docs/build.md of llama.cpp. CMAKE_ARGS may name folders that are searched first.

SYSFS=${SYSFS:-/sys}

# Prints the vendors whose GPUs this machine has, the preferred one first.
gpu_vendors() {
    local each vendors=''
    [ "$(uname -s)" != Darwin ] || { echo Apple; return; }
    for each in "$SYSFS"/bus/pci/devices/*; do
        [[ $(cat "$each/class" 2>/dev/null) == 0x03* ]] && vendors+=" $(cat "$each/vendor" 2>/dev/null)"
    done
    { [[ $vendors == *0x10de* ]] || nvidia-smi -L >/dev/null 2>&1; } && echo NVIDIA # nvidia-smi: also in WSL
    [[ $vendors == *0x1002* ]] && echo AMD
    [[ $vendors == *0x8086* ]] && echo Intel
    return 0
}

own_backend() {
    case $1 in NVIDIA) echo cuda ;; AMD) echo rocm ;; Intel) echo sycl ;; Apple) echo metal ;; esac
}

# Sets `backend` to one that a GPU of this machine has and that can be compiled here, else to cpu; sets `found` to why.
choose_backend() {
    local vendor each lacks
    backend=cpu found="found no GPU"
    for vendor in $(gpu_vendors); do
        for each in "$(own_backend "$vendor")" vulkan; do
            lacks=$(missing_for "$each")
            lacks=${lacks%%$'\n'*}
            if [ -z "$lacks" ]; then
                backend=$each found="found an $vendor GPU"
                return
            elif [ "$found" = "found no GPU" ]; then
                found="found an $vendor GPU, but ${lacks%%|*}; to use it, ${lacks#*|}, then: ./scripts/setup --backend $each"
            fi
        done
    done
}

# Prints CMake's options for a backend.
backend_args() {
    case $1 in
    cuda) echo "-DGGML_CUDA=on" ;;
    rocm) echo "-DGGML_HIP=on" ;;
    sycl) echo "-DGGML_SYCL=on -DCMAKE_C_COMPILER=icx -DCMAKE_CXX_COMPILER=icpx" ;;
    vulkan) echo "-DGGML_VULKAN=on$(linked_loader || true)" ;;
    cpu) [ "$(uname -s)" != Darwin ] || echo "-DGGML_METAL=off" ;;
    esac
}

# Prints what a backend lacks, as WHAT|WHAT TO DO; nothing if llama.cpp can be compiled for it.
missing_for() {
    case $1 in
    cuda)
        command -v nvcc >/dev/null || [ -n "${CUDACXX:-}" ] || [ -x "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" ] ||
            [[ ${CMAKE_ARGS:-} == *CMAKE_CUDA_COMPILER* ]] ||
            echo "no CUDA compiler (nvcc) on PATH|install the CUDA toolkit"
        ;;
    rocm)
        command -v hipconfig >/dev/null || [ -n "${HIPCXX:-}" ] ||
            echo "no HIP compiler (hipconfig) on PATH|install ROCm, and put its bin folder on PATH"
        ;;
    sycl)
        command -v icpx >/dev/null ||
            echo "no SYCL compiler (icpx) on PATH|install Intel's oneAPI toolkit, and source its setvars.sh"
        ;;
    vulkan) missing_for_vulkan ;;
    esac
}

missing_for_vulkan() {
    local least=1.3.272 headers version # VK_EXT_layer_settings, which ggml-vulkan.cpp uses, came with it
    local unpack="unpack a newer libvulkan-dev: dpkg-deb -x FILE FOLDER, then CMAKE_ARGS=-DVulkan_INCLUDE_DIR=FOLDER/usr/include"
    command -v glslc >/dev/null || [ -x "${VULKAN_SDK:-none}/bin/glslc" ] ||
        echo "no compiler of shaders (glslc) on PATH|on Debian and Ubuntu: apt install glslc"
    [[ ${CMAKE_ARGS:-} == *SPIRV-Headers_DIR* ]] ||
        first_of {"${VULKAN_SDK:-/usr}",/usr,/usr/local}/{share,lib,lib/*-linux-gnu}/cmake/SPIRV-Headers/SPIRV-HeadersConfig.cmake >/dev/null ||
        echo "no SPIRV-Headers|on Debian and Ubuntu: apt install spirv-headers"
    { [ -n "$(linked_loader)" ] || is_loader_linkable; } ||
        echo "no Vulkan loader (libvulkan.so)|on Debian and Ubuntu: apt install libvulkan1"
    headers=$(vulkan_headers) || true
    version=$(headers_version "$headers") || true
    if [ -z "$version" ]; then
        echo "no Vulkan headers${headers:+ in $headers}|on Debian and Ubuntu: apt install libvulkan-dev"
    elif [ "$(version_number "$version")" -lt "$(version_number "$least")" ]; then
        echo "the Vulkan headers in $headers are $version, and llama.cpp needs $least|$unpack"
    fi
}

vulkan_headers() {
    if [[ ${CMAKE_ARGS:-} =~ -DVulkan_INCLUDE_DIR=([^\ ]+) ]]; then
        echo "${BASH_REMATCH[1]}"
        return
    fi
    local found
    found=$(first_of {"${VULKAN_SDK:-/usr}",/usr,/usr/local}/include/vulkan/vulkan_core.h) && echo "${found%/vulkan/*}"
}

headers_version() {
    local text
    text=$(grep -E '^#define VK_HEADER_VERSION' "$1/vulkan/vulkan_core.h" 2>/dev/null) || return 0
    [[ $text =~ VK_HEADER_VERSION\ ([0-9]+) ]] || return 0
    local patch=${BASH_REMATCH[1]}
    [[ $text =~ \(0,\ ([0-9]+),\ ([0-9]+), ]] && echo "${BASH_REMATCH[1]}.${BASH_REMATCH[2]}.$patch"
}

version_number() {
    local major minor patch
    IFS=. read -r major minor patch <<<"$1"
    echo $((major * 1000000 + minor * 1000 + patch))
}

is_loader_linkable() {
    [[ ${CMAKE_ARGS:-} == *Vulkan_LIBRARY* ]] ||
        first_of {"${VULKAN_SDK:-/usr}",/usr,/usr/local}/{lib,lib64,lib/*-linux-gnu}/libvulkan.so >/dev/null
}

# Prints the first of these paths that is there.
first_of() {
    local each
    for each in "$@"; do
        [ ! -e "$each" ] || { echo "$each"; return; }
    done
    return 1
}

# Prints the option that links the loader of libvulkan1, which lacks the development package's libvulkan.so.
linked_loader() {
    is_loader_linkable && return
    local found
    found=$(first_of /usr/{lib,lib64,lib/*-linux-gnu}/libvulkan.so.1) && echo " -DVulkan_LIBRARY=$found"
}
