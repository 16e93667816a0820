"""conan create packaging/conan: libgosched from the checkout that this file is in."""

import os

from conan import ConanFile
from conan.tools.files import copy


class Gosched(ConanFile):
    name = "gosched"
    version = "1.1.0"
    license = "MIT OR Apache-2.0"
    description = "Go's scheduler as a C library"
    settings = "os", "arch"
    package_type = "shared-library"

    def validate(self):
        from conan.errors import ConanInvalidConfiguration

        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("libgosched is for Linux")

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        copy(self, "*", src=root, dst=self.export_sources_folder, excludes=("target/*", ".git", ".git/*", ".venv/*"))

    def build(self):
        self.run("make")

    def package(self):
        self.run(f"make install DESTDIR={self.package_folder} PREFIX=")

    def package_info(self):
        self.cpp_info.libs = ["gosched"]
        # The package's own: gosched::gosched and gosched::static.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "gosched")]
