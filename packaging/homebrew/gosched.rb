# brew install --build-from-source packaging/homebrew/gosched.rb: libgosched from the checkout that this file is in.
class Gosched < Formula
  desc "Go's scheduler as a C library"
  version "1.1.0"
  license any_of: ["MIT", "Apache-2.0"]
  # A clone of the checkout, at the commit that is checked out.
  url "file://#{File.expand_path("../..", __dir__)}", using: :git

  depends_on "pkgconf" => [:build, :test]
  depends_on "rust" => :build
  depends_on "hwloc"
  depends_on :linux
  depends_on "systemd"

  def install
    system "make"
    system "make", "install", "PREFIX=#{prefix}"
  end

  test do
    (testpath/"hello.c").write <<~C
      #include <gosched.h>
      static void go_main(void *arg) { (void)arg; }
      int main(void) { return gs_run(go_main, 0) != 0; }
    C
    system ENV.cc, "hello.c", "-I#{include}", "-L#{lib}", "-lgosched", "-Wl,-rpath,#{lib}", "-o", "hello"
    system "./hello"
  end
end
