# vcpkg install gosched --overlay-ports=packaging/vcpkg: from the checkout that this file is in.
# It needs cargo, hwloc and libudev of the system. There is no debug variant.
set(VCPKG_BUILD_TYPE release)
set(VCPKG_POLICY_SKIP_MISPLACED_CMAKE_FILES_CHECK enabled)
set(VCPKG_POLICY_DLLS_IN_STATIC_LIBRARY enabled)
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_execute_required_process(COMMAND make WORKING_DIRECTORY "${SOURCE_PATH}" LOGNAME build)
vcpkg_execute_required_process(COMMAND make install "PREFIX=${CURRENT_PACKAGES_DIR}"
    WORKING_DIRECTORY "${SOURCE_PATH}" LOGNAME install)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE-MIT" "${SOURCE_PATH}/LICENSE-APACHE")
