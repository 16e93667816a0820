"""pip install --no-build-isolation . (with gosched and setuptools installed)"""

import gosched
from setuptools import Extension, setup

factors = Extension(
    "factors",
    ["factors.c"],
    include_dirs=[gosched.get_include()],
    library_dirs=[gosched.get_library_dir()],
    libraries=["gosched"],
)
setup(name="gosched-example-factors", version="0.1.0", ext_modules=[factors], py_modules=[], install_requires=["gosched"])
